"""What runs inside the server: every check-and-change of a session as one script, atomic and replicated as one.

A session's keys lie in one slot (all carry the tag {name}). The stream holds the records: id `seq-0`, fields h (hash),
b (bytes), w (the delivery that wrote it), z (bytes of all records before it). The head, a hash, holds

    s, h    seq and hash of the last record           c   the last seq that a reader or writer knows to be replicated
    n       bytes of all records there ever were      t   touched: a write that WAIT can wait for
    p, q    snapshot bytes, blob bytes                r   the last rewrite's delivery
    o, u    for whom the next place is reserved, and until when

Scripts that change something may be delivered twice: each finds its own earlier delivery, or changes nothing twice.
"""

from __future__ import annotations

from hashlib import sha1


class Script:
    """A Lua script and the name the server knows it by."""

    def __init__(self, body: str) -> None:
        self.body = body
        self.sha = sha1(body.encode(), usedforsecurity=False).hexdigest()


_TIME = """
local function now_ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end
"""

_BLOBS = """
local function put_blob(name, body, at_ms)
  if redis.call('HSETNX', KEYS[3], name, body) == 1 then redis.call('HINCRBY', KEYS[1], 'q', #body) end
  redis.call('ZADD', KEYS[4], at_ms, name)
end
"""

APPEND = Script(
    _TIME
    + _BLOBS
    + """
-- KEYS head stream [blobs put named incarnations]
-- ARGV after hash delivery replicated(0|1) limit at_ms incarnation records blobs token reserve_ms, then seq hash body each, then name body each
local head, now = redis.call('HMGET', KEYS[1], 's', 'h', 'n', 'o', 'u'), now_ms()
local seq, hash = head[1] or '0', head[2] or ''
local behind = seq ~= ARGV[1] or hash ~= ARGV[2]
if behind then
  local next = string.format('%.0f', tonumber(ARGV[1]) + 1) .. '-0'
  local first = redis.call('XRANGE', KEYS[2], next, next)
  if first[1] and first[1][2][6] == ARGV[3] then
    if ARGV[4] == '1' then redis.call('HSET', KEYS[1], 't', ARGV[3]) end
    return {2, now}
  end
end
if head[4] and head[4] ~= ARGV[10] and tonumber(head[5]) > now then return {3, now} end
if behind then
  if ARGV[4] == '1' then redis.call('HSET', KEYS[1], 't', ARGV[3]) end
  if ARGV[11] ~= '0' and head[1] then redis.call('HSET', KEYS[1], 'o', ARGV[10], 'u', now + ARGV[11]) end
  return {0, now, redis.call('XRANGE', KEYS[2], '(' .. ARGV[1] .. '-0', '+', 'COUNT', ARGV[5])}
end
if head[4] then redis.call('HDEL', KEYS[1], 'o', 'u') end
local records, at, size = tonumber(ARGV[8]), 12, tonumber(head[3] or '0')
for i = 1, records do
  redis.call('XADD', KEYS[2], ARGV[at] .. '-0', 'h', ARGV[at + 1], 'b', ARGV[at + 2], 'w', ARGV[3], 'z', size)
  size = size + #ARGV[at + 2]
  at = at + 3
end
local last = ARGV[at - 3]
redis.call('HSET', KEYS[1], 's', last, 'h', ARGV[at - 2], 'n', size)
if ARGV[4] == '1' then redis.call('HSET', KEYS[1], 'c', ARGV[1]) end
for i = 1, tonumber(ARGV[9]) do
  put_blob(ARGV[at], ARGV[at + 1], ARGV[6])
  redis.call('ZADD', KEYS[5], last, ARGV[at])
  at = at + 2
end
if ARGV[7] ~= '' then redis.call('SADD', KEYS[6], ARGV[7]) end
return {1, now}
"""
)

RELEASE = Script("""
-- KEYS head ARGV token: give back a reserved place that was not used
if redis.call('HGET', KEYS[1], 'o') == ARGV[1] then redis.call('HDEL', KEYS[1], 'o', 'u') end
return 1
""")

READ = Script("""
-- KEYS head stream ARGV after limit delivery: the records, and whether one of them is not known to be replicated
local records = redis.call('XRANGE', KEYS[2], '(' .. ARGV[1] .. '-0', '+', 'COUNT', ARGV[2])
local last = records[#records]
if not last then return {0, records} end
local known = tonumber(redis.call('HGET', KEYS[1], 'c') or '0')
if tonumber(string.match(last[1], '^%d+')) <= known then return {0, records} end
redis.call('HSET', KEYS[1], 't', ARGV[3])
return {1, records}
""")

LOOK = Script("""
-- KEYS head look ARGV delivery: the last record's hash, and a write that WAIT can wait for; one that ends by itself, since looking makes no session
redis.call('SET', KEYS[2], ARGV[1], 'PX', 1000)
return redis.call('HGET', KEYS[1], 'h')
""")

CONFIRM = Script("""
-- KEYS head stream ARGV seq hash: note that this record is replicated
local found = redis.call('XRANGE', KEYS[2], ARGV[1] .. '-0', ARGV[1] .. '-0')
if found[1] and found[1][2][2] == ARGV[2] and tonumber(redis.call('HGET', KEYS[1], 'c') or '0') < tonumber(ARGV[1]) then
  redis.call('HSET', KEYS[1], 'c', ARGV[1])
end
return 1
""")

_SNAPSHOTS = """
-- the index of snapshots: seq -> upload id (12 bytes), hash (16 bytes), size in 16 hex digits, names of blobs (32 bytes each)
local function drop_snapshots(index, prefix, wanted)
  local all, seqs = redis.call('HGETALL', index), {}
  for i = 1, #all, 2 do seqs[#seqs + 1] = tonumber(all[i]) end
  table.sort(seqs, function(a, b) return a > b end)
  local first = redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', 1)[1]
  local first_seq = first and tonumber(string.match(first[1], '^%d+')) or 0
  local base = nil
  for i = 1, #seqs do
    if seqs[i] < first_seq then base = seqs[i] break end
    if seqs[i] == first_seq then base = seqs[i] end
  end
  for i = 1, #seqs do
    if not wanted or (i > 2 and seqs[i] ~= base) then
      local field = string.format('%.0f', seqs[i])
      local kept = redis.call('HGET', index, field)
      redis.call('UNLINK', prefix .. string.sub(kept, 1, 12))
      redis.call('HINCRBY', KEYS[1], 'p', -tonumber(string.sub(kept, 29, 44), 16))
      redis.call('HDEL', index, field)
    end
  end
end
local function put_snapshot(index, prefix, seq, upload, hash, size, names)
  local old = redis.call('HGET', index, seq)
  if old and string.sub(old, 1, 12) == upload then return end
  if old then
    redis.call('UNLINK', prefix .. string.sub(old, 1, 12))
    redis.call('HINCRBY', KEYS[1], 'p', -tonumber(string.sub(old, 29, 44), 16))
  end
  redis.call('PERSIST', prefix .. upload)
  redis.call('HSET', index, seq, upload .. hash .. string.format('%016x', size) .. names)
  redis.call('HINCRBY', KEYS[1], 'p', size)
end
"""

SAVE_SNAPSHOT = Script(
    _SNAPSHOTS
    + """
-- KEYS head stream index ARGV prefix seq upload hash size names
if not redis.call('HGET', KEYS[1], 's') then
  redis.call('UNLINK', ARGV[1] .. ARGV[3])
  return 0
end
put_snapshot(KEYS[3], ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6])
drop_snapshots(KEYS[3], ARGV[1], true)
return 1
"""
)

BEGIN = Script(
    _BLOBS
    + _SNAPSHOTS
    + """
-- KEYS head stream blobs put named incarnations index
-- ARGV prefix delivery at_ms incarnation seq hash body upload snapshot_seq snapshot_hash snapshot_size names blobs, then name body each
if redis.call('HGET', KEYS[1], 's') then
  local last = redis.call('XRANGE', KEYS[2], ARGV[5] .. '-0', ARGV[5] .. '-0')[1]
  if last and last[2][6] == ARGV[2] then return 1 end
  redis.call('UNLINK', ARGV[1] .. ARGV[8])
  return 0
end
redis.call('UNLINK', KEYS[2], KEYS[5], KEYS[7])
redis.call('XADD', KEYS[2], ARGV[5] .. '-0', 'h', ARGV[6], 'b', ARGV[7], 'w', ARGV[2], 'z', 0)
redis.call('HSET', KEYS[1], 's', ARGV[5], 'h', ARGV[6], 'n', #ARGV[7], 'c', '0')
put_snapshot(KEYS[7], ARGV[1], ARGV[9], ARGV[8], ARGV[10], tonumber(ARGV[11]), ARGV[12])
for i = 1, tonumber(ARGV[13]) do put_blob(ARGV[12 + 2 * i], ARGV[13 + 2 * i], ARGV[3]) end
redis.call('SADD', KEYS[6], ARGV[4])
return 1
"""
)

REWRITE = Script(
    _SNAPSHOTS
    + """
-- KEYS head stream named index derived ARGV prefix delivery after hash records snapshots,
-- then per record seq hash body names(joined), then per snapshot seq upload hash size names
local head = redis.call('HMGET', KEYS[1], 's', 'h', 'r')
if head[3] == ARGV[2] then return 1 end
if head[1] ~= ARGV[3] or head[2] ~= ARGV[4] then return 0 end
redis.call('UNLINK', KEYS[2], KEYS[3], KEYS[5])
drop_snapshots(KEYS[4], ARGV[1], false)
local at, size = 7, 0
for i = 1, tonumber(ARGV[5]) do
  redis.call('XADD', KEYS[2], ARGV[at] .. '-0', 'h', ARGV[at + 1], 'b', ARGV[at + 2], 'w', ARGV[2], 'z', size)
  size = size + #ARGV[at + 2]
  for name = 1, #ARGV[at + 3], 32 do redis.call('ZADD', KEYS[3], ARGV[at], string.sub(ARGV[at + 3], name, name + 31)) end
  redis.call('HSET', KEYS[1], 's', ARGV[at], 'h', ARGV[at + 1])
  at = at + 4
end
redis.call('HSET', KEYS[1], 'n', size, 'r', ARGV[2], 'c', '0')
for i = 1, tonumber(ARGV[6]) do
  put_snapshot(KEYS[4], ARGV[1], ARGV[at], ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3]), ARGV[at + 4])
  at = at + 5
end
return 1
"""
)

TRIM = Script(
    _SNAPSHOTS
    + """
-- KEYS head stream named index ARGV prefix up_to blobs_up_to only(0|1) upload seq hash size names, then released names each
local last = tonumber(redis.call('HGET', KEYS[1], 's') or '0')
if last == 0 then
  if ARGV[5] ~= '' then redis.call('UNLINK', ARGV[1] .. ARGV[5]) end
  return 0
end
local from = math.min(tonumber(ARGV[2]) + 1, last)
redis.call('XTRIM', KEYS[2], 'MINID', '=', string.format('%.0f', from) .. '-0')
if ARGV[4] == '0' then
  redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', math.max(tonumber(ARGV[2]), tonumber(ARGV[3])))
else
  redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', ARGV[2])
end
if ARGV[5] ~= '' then put_snapshot(KEYS[4], ARGV[1], ARGV[6], ARGV[5], ARGV[7], tonumber(ARGV[8]), ARGV[9]) end
drop_snapshots(KEYS[4], ARGV[1], true)
if #ARGV < 10 then return 1 end
local released = {}
for i = 10, #ARGV do
  released[ARGV[i]] = true
  local score = redis.call('ZSCORE', KEYS[3], ARGV[i])
  if score and tonumber(score) <= tonumber(ARGV[3]) then redis.call('ZREM', KEYS[3], ARGV[i]) end
end
local all, seqs = redis.call('HGETALL', KEYS[4]), {}
for i = 1, #all, 2 do seqs[#seqs + 1] = tonumber(all[i]) end
table.sort(seqs, function(a, b) return a > b end)
for i = 3, #seqs do
  local field = string.format('%.0f', seqs[i])
  local kept = redis.call('HGET', KEYS[4], field)
  local left = {string.sub(kept, 1, 44)}
  for name = 45, #kept, 32 do
    local sha256 = string.sub(kept, name, name + 31)
    if not released[sha256] then left[#left + 1] = sha256 end
  end
  redis.call('HSET', KEYS[4], field, table.concat(left))
end
return 1
"""
)

PUT_BLOB = Script(
    _BLOBS
    + """
-- KEYS head stream blobs put ARGV name body at_ms
put_blob(ARGV[1], ARGV[2], ARGV[3])
return 1
"""
)

COLLECT = Script("""
-- KEYS head stream blobs put named index ARGV before_ms bound(0|1), then names each
local only = {}
for i = 3, #ARGV do only[ARGV[i]] = true end
local held, index = {}, redis.call('HVALS', KEYS[6])
for i = 1, #index do
  for name = 45, #index[i], 32 do held[string.sub(index[i], name, name + 31)] = true end
end
local count, size, left = 0, 0, 0
local put = redis.call('ZRANGE', KEYS[4], 0, -1, 'WITHSCORES')
for i = 1, #put, 2 do
  local name = put[i]
  if not held[name] and not redis.call('ZSCORE', KEYS[5], name) then
    if tonumber(put[i + 1]) < tonumber(ARGV[1]) and (ARGV[2] == '0' or only[name]) then
      local bytes = redis.call('HSTRLEN', KEYS[3], name)
      redis.call('HDEL', KEYS[3], name)
      redis.call('ZREM', KEYS[4], name)
      redis.call('HINCRBY', KEYS[1], 'q', -bytes)
      count, size = count + 1, size + bytes
    else
      left = left + 1
    end
  end
end
return {count, size, left}
""")

DROP = Script(
    _SNAPSHOTS
    + """
-- KEYS head stream blobs put named incarnations index derived ARGV prefix incarnation
drop_snapshots(KEYS[7], ARGV[1], false)
redis.call('UNLINK', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[7], KEYS[8])
redis.call('SREM', KEYS[6], ARGV[2])
return 1
"""
)

PUT_DERIVED = Script("""
-- KEYS head derived ARGV name body
if redis.call('HGET', KEYS[1], 's') then redis.call('HSET', KEYS[2], ARGV[1], ARGV[2]) end
return 1
""")
