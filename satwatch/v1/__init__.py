"""Generated messages; see proto/satwatch/v1/satwatch.proto and `make proto`."""
