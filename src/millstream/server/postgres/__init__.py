"""A session behind PostgreSQL's wire protocol (version 3): psql, drivers and BI tools connect as to a database.

`messages.py` is the framing, `values.py` the forms of values, `connection.py` one client's conversation,
`statements.py` what a statement means here, `copying.py` COPY in and out, `catalog.py` the system catalog that clients
look at, and `listening.py` the server.
"""
