"""Wrong answers to chapter 01 that a case must catch: small slips in otherwise right ones."""
