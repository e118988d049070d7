"""The life of an allocation: claims, states, preparation and release."""
