"""Pure functions from inventories and a request to ranked candidates and reasons."""
