-- Records that dispatchers gave up. A row stays when its letter is gone, without what it carried: so nothing comes back.
CREATE TABLE stopbank.dead_letters (
    partition     text COLLATE "C" NOT NULL,
    record_offset bigint      NOT NULL,
    domain        bytea       NOT NULL, -- any bytes
    payload       bytea,
    header_keys   bytea[],
    header_values bytea[],
    size          integer     NOT NULL, -- of the payload
    record_time   timestamptz,          -- by the source's clock
    attempts      integer     NOT NULL,
    failure       text        NOT NULL,
    given_up_at   timestamptz NOT NULL,
    route         text        NOT NULL,
    parked        boolean     NOT NULL DEFAULT false,
    note          text        NOT NULL DEFAULT '',
    fate          text,                 -- null: it waits; else replayed or discarded
    gone_at       timestamptz,
    PRIMARY KEY (partition, record_offset)
);

-- What waits, in the order in which it is listed.
CREATE INDEX dead_letters_waiting ON stopbank.dead_letters (partition, record_offset) WHERE fate IS NULL;
