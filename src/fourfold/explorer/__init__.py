"""The web explorer: pages that show a store and its history, over the handlers of the HTTP API."""
