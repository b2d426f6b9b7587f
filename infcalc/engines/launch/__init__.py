"""From a resolved deployment to the text that starts it: options with reasons, commands, snippets, manifests."""
