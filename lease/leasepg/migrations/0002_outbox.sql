-- What tells this database from another one, in which a ledger or an outbox of the same name may lie.
ALTER TABLE stopbank.lease_schema ADD COLUMN database uuid NOT NULL DEFAULT gen_random_uuid();

-- The ids of all records of all outboxes. They begin at the microsecond of this migration, so that an outbox that is made anew gives none out
-- again that a ledger may remember; and no column owns the sequence, so that TRUNCATE … RESTART IDENTITY leaves it alone. Each nextval must be
-- the greatest so far, so the cache has to stay 1.
CREATE SEQUENCE stopbank.outbox_ids CACHE 1;
SELECT setval('stopbank.outbox_ids', (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);

CREATE TABLE stopbank.outboxes (
    outbox     text COLLATE "C" PRIMARY KEY,
    partitions integer NOT NULL, -- never changes: a key would change its partition, and overtake itself
    first      bigint  NOT NULL  -- no id of it is smaller
);

CREATE TABLE stopbank.outbox_positions (
    outbox    text COLLATE "C" NOT NULL,
    partition integer NOT NULL,
    claims    bigint  NOT NULL, -- how often it was taken: the fence of a former owner's commits
    floor     bigint  NOT NULL, -- all below is done, and its rows are deleted
    PRIMARY KEY (outbox, partition)
);

CREATE TABLE stopbank.outbox_records (
    outbox    text COLLATE "C" NOT NULL,
    partition integer NOT NULL,
    id        bigint  NOT NULL DEFAULT nextval('stopbank.outbox_ids'),
    domain    bytea   NOT NULL,
    payload   bytea   NOT NULL,
    headers   bytea,
    enqueued  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (outbox, partition, id)
);
