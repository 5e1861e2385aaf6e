SELECT count(*) FROM pool_waiters AS waiters JOIN browser_pools AS pools ON pools.id = waiters.pool_id
  WHERE waiters.outcome IS NULL
  AND (SELECT count(*) FROM browsers WHERE pool_id = pools.id AND state = 'leased') < pools.size
