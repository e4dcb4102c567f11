"""The line dialect: text -> records and records -> text. Pure; the meaning of a record is `pinfold.state`'s."""
