"""The tables that compare Counterpoise with its peers: one module per benchmark."""
