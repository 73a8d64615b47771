local redis = (function(server)
  local now, rehearsed = tonumber(ARGV[#ARGV]), {}
  function rehearsed.call(name, key, ...)
    local words = { ... }
    if name == 'TIME' then
      return { string.format('%.0f', math.floor(now / 1000000)), string.format('%.0f', now % 1000000) }
    elseif name == 'SET' and words[2] == 'PXAT' then
      assert(tonumber(words[3]) * 1000 > now, 'a state is kept that has expired')
      return server.call('SET', key, words[1], 'EX', 3600)
    elseif name == 'SETRANGE' then
      assert(server.call('TTL', key) > 0, 'a state is kept for ever')
    elseif name == 'PEXPIREAT' then
      assert(words[1] * 1000 > now, 'a log is kept that has expired')
      return server.call('EXPIRE', key, 3600)
    end
    return server.call(name, key, ...)
  end
  return rehearsed
end)(redis)
