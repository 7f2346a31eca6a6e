"""Wrong answers to chapter 03 that a case had to be written for."""
