"""One order in, one result out."""
