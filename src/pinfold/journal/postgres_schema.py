"""The tables and the one function of a PostgreSQL store, as migrations: each runs once, in order, in a transaction.

Every primary key begins with `session`, and nothing is looked up without it: the large tables can be partitioned by it.
`session` holds the head of each journal; an append locks its row, so appends, trims and rewrites of a session queue there.
A row with last_seq 0 is a session that has blobs and no entry yet; it counts as absent. `garbage` marks sessions that may have
blobs nobody names any more: collecting looks at those alone.
"""

from __future__ import annotations

STORE_FORMAT = 1

FIRST = """
CREATE SCHEMA IF NOT EXISTS {schema};
CREATE TABLE {schema}.store (format integer NOT NULL);
INSERT INTO {schema}.store VALUES (0);
CREATE TABLE {schema}.session (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text COLLATE "C" NOT NULL UNIQUE,
  last_seq bigint NOT NULL DEFAULT 0,
  last_hash bytea NOT NULL DEFAULT '',
  entries bigint NOT NULL DEFAULT 0,
  entry_bytes bigint NOT NULL DEFAULT 0,
  waited_until_ms bigint NOT NULL DEFAULT 0,
  reserved_for bytea,
  reserved_until_ms bigint NOT NULL DEFAULT 0,
  garbage boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50);
CREATE INDEX session_garbage ON {schema}.session (id) WHERE garbage;
CREATE TABLE {schema}.entry (
  session bigint NOT NULL, seq bigint NOT NULL, hash bytea NOT NULL, delivery bytea NOT NULL, body bytea NOT NULL,
  PRIMARY KEY (session, seq)
){partitioned};
CREATE TABLE {schema}.snapshot (
  session bigint NOT NULL, seq bigint NOT NULL, part integer NOT NULL, hash bytea NOT NULL, body bytea NOT NULL,
  PRIMARY KEY (session, seq, part)
);
CREATE TABLE {schema}.blob (
  session bigint NOT NULL, sha256 bytea NOT NULL, put_at_ms bigint NOT NULL, body bytea NOT NULL,
  PRIMARY KEY (session, sha256)
);
CREATE TABLE {schema}.blob_ref (
  session bigint NOT NULL, snapshot boolean NOT NULL, seq bigint NOT NULL, sha256 bytea NOT NULL,
  PRIMARY KEY (session, snapshot, seq, sha256)
);
CREATE INDEX blob_ref_sha256 ON {schema}.blob_ref (session, sha256);
CREATE TABLE {schema}.derived (
  session bigint NOT NULL, name text NOT NULL, body bytea NOT NULL,
  PRIMARY KEY (session, name)
);
ALTER TABLE {schema}.blob ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE {schema}.snapshot ALTER COLUMN body SET STORAGE EXTERNAL;

CREATE FUNCTION {schema}.append(
  p_name text, p_after bigint, p_hash bytea, p_delivery bytea, p_seqs bigint[], p_hashes bytea[], p_bodies bytea[],
  p_names bytea[], p_blobs bytea[], p_limit bigint, p_token bytea, p_reserve_ms bigint
) RETURNS TABLE (status integer, at_ms bigint, seq bigint, hash bytea, body bytea) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_id bigint;
  v_waited bigint;
  v_last bigint := p_seqs[cardinality(p_seqs)];
  v_size bigint := 0;
  v_body bytea;
  v_now bigint := (extract(epoch FROM clock_timestamp()) * 1000)::bigint;
BEGIN
  at_ms := v_now;
  FOREACH v_body IN ARRAY p_bodies LOOP v_size := v_size + octet_length(v_body); END LOOP;
  IF p_after = 0 THEN
    INSERT INTO {schema}.session (name) VALUES (p_name) ON CONFLICT (name) DO NOTHING;
  END IF;
  UPDATE {schema}.session SET last_seq = v_last, last_hash = p_hashes[cardinality(p_hashes)],
      entries = entries + cardinality(p_seqs), entry_bytes = entry_bytes + v_size, reserved_for = NULL, reserved_until_ms = 0
    WHERE name = p_name AND last_seq = p_after AND last_hash = p_hash
      AND (reserved_until_ms <= v_now OR reserved_for = p_token)
    RETURNING id, waited_until_ms INTO v_id, v_waited;
  IF NOT FOUND THEN
    SELECT s.id INTO v_id FROM {schema}.session s WHERE s.name = p_name;
    IF EXISTS (SELECT 1 FROM {schema}.entry e WHERE e.session = v_id AND e.seq = p_after + 1 AND e.delivery = p_delivery) THEN
      status := 2; RETURN NEXT;
      RETURN;
    END IF;
    -- Reserved for another, or it was when this tried and is no longer: each statement here sees what was committed before it.
    IF EXISTS (SELECT 1 FROM {schema}.session s WHERE s.id = v_id
        AND ((s.reserved_until_ms > v_now AND s.reserved_for <> p_token) OR (s.last_seq = p_after AND s.last_hash = p_hash))) THEN
      status := 3; RETURN NEXT;
      RETURN;
    END IF;
    IF p_reserve_ms > 0 THEN
      UPDATE {schema}.session SET reserved_for = p_token, reserved_until_ms = v_now + p_reserve_ms
        WHERE id = v_id AND (reserved_until_ms <= v_now OR reserved_for = p_token);
      IF NOT FOUND THEN
        status := 3; RETURN NEXT;
        RETURN;
      END IF;
    END IF;
    status := 0; RETURN NEXT;
    RETURN QUERY SELECT 0, v_now, e.seq, e.hash, e.body FROM {schema}.entry e
      WHERE e.session = v_id AND e.seq > p_after ORDER BY e.seq LIMIT p_limit;
    RETURN;
  END IF;
  IF cardinality(p_seqs) = 1 THEN
    INSERT INTO {schema}.entry VALUES (v_id, p_seqs[1], p_hashes[1], p_delivery, p_bodies[1]);
  ELSE
    INSERT INTO {schema}.entry SELECT v_id, u.a, u.b, p_delivery, u.c FROM unnest(p_seqs, p_hashes, p_bodies) AS u(a, b, c);
  END IF;
  IF cardinality(p_names) > 0 THEN
    INSERT INTO {schema}.blob SELECT v_id, u.a, v_now, u.b FROM unnest(p_names, p_blobs) AS u(a, b)
      ON CONFLICT (session, sha256) DO UPDATE SET put_at_ms = EXCLUDED.put_at_ms;
    INSERT INTO {schema}.blob_ref SELECT v_id, false, v_last, u.a FROM unnest(p_names) AS u(a) ON CONFLICT DO NOTHING;
  END IF;
  IF v_waited > v_now THEN
    PERFORM pg_notify('{schema}', p_name);
  END IF;
  status := 1; RETURN NEXT;
END
$$;
"""

MIGRATIONS = (FIRST,)
assert len(MIGRATIONS) == STORE_FORMAT


def statements(number: int, schema: str, partitions: int = 0) -> list[str]:
    """Return the SQL of one migration. partitions: of the entries, by hash of their session; 0 for one plain table."""
    body = MIGRATIONS[number].replace("{schema}", schema).replace("{partitioned}", " PARTITION BY HASH (session)" if partitions else "")
    made = [body]
    if number == 0:
        made += [
            f"CREATE TABLE {schema}.entry_{part} PARTITION OF {schema}.entry FOR VALUES WITH (MODULUS {partitions}, REMAINDER {part})"
            for part in range(partitions)
        ]
    return made
