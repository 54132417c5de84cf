"""Events, settings and tables, turned into what a person or a program reads. Only this room prints."""
