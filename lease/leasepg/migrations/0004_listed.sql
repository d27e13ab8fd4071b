-- Where a row is filed moves with every lease, so no index may know it: PostgreSQL then writes the row's next version on the same page and
-- leaves all indexes alone (a HOT update). `listed` stays true once a row was filed; rows that are no longer filed are taken off in bulk.
ALTER TABLE stopbank.lease_domains
    ADD COLUMN filed  smallint NOT NULL DEFAULT 0,    -- 0: nowhere; 1: idle, with a backlog (ready); 2: has a lease (held)
    ADD COLUMN listed boolean  NOT NULL DEFAULT false; -- true wherever filed is not 0
UPDATE stopbank.lease_domains SET filed = CASE WHEN held THEN 2 WHEN ready THEN 1 ELSE 0 END, listed = held OR ready;
ALTER TABLE stopbank.lease_domains DROP COLUMN held, DROP COLUMN ready, SET (fillfactor = 50); -- and their indexes

-- What a new owner looks for, and what was filed lately.
CREATE INDEX lease_domains_listed ON stopbank.lease_domains (ledger, domain) WHERE listed;
