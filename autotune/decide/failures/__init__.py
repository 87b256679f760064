"""From a server's log and behaviour to the failure it had. `docs/failures.md` tells the steps."""
