"""Wrong answers to chapter 05 that a case had to be written for."""
