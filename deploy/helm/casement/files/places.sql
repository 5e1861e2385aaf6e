SELECT (SELECT coalesce(sum(size), 0) FROM browser_pools)
  + (SELECT count(*) FROM browsers WHERE pool_id IS NULL AND state IN ('warming', 'leased'))
