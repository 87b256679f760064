"""Where the adapters meet the loop: from a request as the user made it to a running study."""
