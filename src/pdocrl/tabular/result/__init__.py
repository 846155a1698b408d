"""The result as it is saved, loaded, printed, drawn and exported."""
