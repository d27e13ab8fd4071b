-- The ledgers that are written per window: who has claimed one, and what its journal says.
CREATE TABLE stopbank.lease_journals (
    ledger  text COLLATE "C" PRIMARY KEY,
    claim   bigint NOT NULL, -- the last owner's: the fence of the entries of a former one
    entries bigint NOT NULL  -- how many there were: the number of the last
) WITH (fillfactor = 50);

CREATE TABLE stopbank.lease_entries (
    ledger text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    entry  bytea  NOT NULL, -- as package lease/internal/journal writes it
    PRIMARY KEY (ledger, number)
);

-- What transactions of handlers have finished in those ledgers, and by which token one may finish more.
CREATE TABLE stopbank.lease_finished (
    ledger   text COLLATE "C" NOT NULL,
    domain   bytea  NOT NULL, -- as in lease_domains
    least    bigint NOT NULL, -- the least token that finishes anything
    finished bigint,          -- the greatest offset that a transaction has finished; null: none
    PRIMARY KEY (ledger, domain)
) WITH (fillfactor = 50);
