"""Wrong answers of chapter 07."""
