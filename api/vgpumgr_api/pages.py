"""The page at /docs: the OpenAPI document to read and try. Everything it loads comes from this service."""

from __future__ import annotations

POLICY = (
    "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; "
    "script-src 'self' 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"
)
"""Content-Security-Policy of every answer; the page's own few lines of script and style are inline."""

DOCUMENTATION = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>vgpumgr – REST API</title>
<link rel="icon" href="/docs/swagger/images/swagger.svg">
<link rel="stylesheet" href="/docs/swagger/css/swagger-ui.css">
</head>
<body>
<div id="reference"></div>
<noscript>The same as a document: <a href="/openapi.json">/openapi.json</a></noscript>
<script src="/docs/swagger/js/swagger-ui-bundle.js"></script>
<script>
SwaggerUIBundle({url: "/openapi.json", dom_id: "#reference", deepLinking: true, validatorUrl: null})
</script>
</body>
</html>
"""
