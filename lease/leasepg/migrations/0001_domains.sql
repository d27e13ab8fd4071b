-- The state of every domain of every ledger. A row is never deleted: its version must never begin again.
CREATE SCHEMA IF NOT EXISTS stopbank;

CREATE TABLE stopbank.lease_domains (
    ledger      text COLLATE "C" NOT NULL,
    domain      bytea   NOT NULL, -- any bytes; of a name too long for an index the beginning and a hash
    long_domain bytea,            -- such a name as it is
    version     bigint  NOT NULL, -- rises with every swap
    held        boolean NOT NULL, -- has a lease
    ready       boolean NOT NULL, -- idle, with a backlog
    state       bytea   NOT NULL, -- as package durable writes it down
    PRIMARY KEY (ledger, domain)
) WITH (fillfactor = 70); -- room for a row's next version on the page where it is

-- What a new owner looks for: few rows at a time, so the indexes are small.
CREATE INDEX lease_domains_held  ON stopbank.lease_domains (ledger, domain) WHERE held;
CREATE INDEX lease_domains_ready ON stopbank.lease_domains (ledger, domain) WHERE ready;

-- How far these files have been carried out.
CREATE TABLE stopbank.lease_schema (
    one     boolean PRIMARY KEY DEFAULT true CHECK (one),
    version integer NOT NULL
);
INSERT INTO stopbank.lease_schema (version) VALUES (0);
