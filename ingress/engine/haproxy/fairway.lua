-- What maps alone can't say: rules with conditions, and what they change. A rule's
-- program is a file of constants, named by its hash; nothing in it is ever run.
local programs = os.getenv("FAIRWAY_PROGRAMS")
local cache, cached = {}, 0

local function load(name)
  local p = cache[name]
  if p then return p end
  local f = loadfile(programs .. "/" .. name, "t", {})
  if not f then return nil end
  p = f()
  if cached > 20000 then cache, cached = {}, 0 end
  cache[name], cached = p, cached + 1
  return p
end

-- Regular expressions are those of Go, as it compiles them: a machine that goes
-- through a text once, whatever the expression (Pike 1987).
local function rune(s, i)
  local a = s:byte(i)
  if not a then return -1, 0 end
  if a < 0x80 then return a, 1 end
  local n = utf8.len(s, i, i)
  if n ~= 1 then return 0xFFFD, 1 end
  local c = utf8.codepoint(s, i)
  if c > 0x10FFFF or c >= 0xD800 and c <= 0xDFFF then return 0xFFFD, 1 end
  return c, (utf8.offset(s, 2, i) or i + 1) - i
end

local function word(c)
  return c >= 48 and c <= 57 or c >= 65 and c <= 90 or c == 95 or c >= 97 and c <= 122
end

local function at(s, i, before, here)
  local flags = 0
  if i == 1 then flags = 4 | 1 elseif before == 10 then flags = 1 end
  if i > #s then flags = flags | 8 | 2 elseif here == 10 then flags = flags | 2 end
  if word(before) ~= word(here) then return flags | 16 end
  return flags | 32
end

local function search(prog, s, caught)
  local list, seen, found, matched
  local function follow(pc, i, flags, caps)
    if seen[pc] then return end
    seen[pc] = true
    local inst = prog[pc]
    local op = inst[1]
    if op == 1 then
      follow(inst[2], i, flags, caps)
      follow(inst[3], i, flags, caps)
    elseif op == 2 then
      if caught then
        local own = {}
        for k, v in pairs(caps) do own[k] = v end
        own[inst[3]] = i
        caps = own
      end
      follow(inst[2], i, flags, caps)
    elseif op == 3 then
      if inst[3] & ~flags == 0 then follow(inst[2], i, flags, caps) end
    elseif op == 6 then
      follow(inst[2], i, flags, caps)
    elseif op ~= 5 then
      list[#list + 1] = {pc, caps}
    end
  end
  local current, i, before = {}, 1, -1
  while true do
    local here, width = rune(s, i)
    local flags = at(s, i, before, here)
    list, seen = {}, {}
    for _, t in ipairs(current) do follow(t[1], i, flags, t[2]) end
    if not matched then follow(prog.start, i, flags, caught and {[0] = i} or nil) end
    current = {}
    for _, t in ipairs(list) do
      local inst = prog[t[1]]
      if inst[1] == 4 then
        if not caught then return true end
        matched, found = true, t[2]
        found[1] = i
        break
      end
      local ranges = inst[3]
      for r = 1, #ranges, 2 do
        if here >= ranges[r] and here <= ranges[r + 1] then
          current[#current + 1] = {inst[2], t[2]}
          break
        end
      end
    end
    if width == 0 or matched and #current == 0 then return matched or false, found end
    before, i = here, i + width
  end
end

local function fits(want, value)
  if want.re then return (search(want.re, value)) end
  return want.v == value
end

-- Query strings are read as Go does (net/url, ParseQuery).
local function unescape(s)
  s = s:gsub("+", " ")
  local bad = s:gsub("%%%x%x", ""):find("%", 1, true)
  if bad then return nil end
  return (s:gsub("%%(%x%x)", function(h) return string.char(tonumber(h, 16)) end))
end

local function query(text)
  local out = {}
  for part in text:gmatch("[^&]+") do
    if not part:find(";", 1, true) then
      local k, v = part:match("^([^=]*)=?(.*)$")
      k, v = unescape(k), unescape(v)
      if k and v and not out[k] then out[k] = v end
    end
  end
  return out
end

local function header(headers, name)
  local h = headers[name]
  if not h then return nil end
  local out, i = h[0], 1
  while h[i] do
    out, i = out .. "," .. h[i], i + 1
  end
  return out
end

local function get(txn, name) return txn:get_var("txn." .. name) or "" end

-- first is the first rule of a program that a request fits with a path.
local function first(txn, program, path)
  local method, headers, values = nil, nil, nil
  for _, r in ipairs(program) do
    local ok = not r.p or (search(r.p, path))
    if ok and r.m then
      method = method or txn.sf:method()
      ok = r.m == method
    end
    if ok and r.h then
      headers = headers or txn.http:req_get_headers()
      for _, want in ipairs(r.h) do
        local v
        if want.n == "host" then v = get(txn, "host") else v = header(headers, want.n) end
        if v == "-" and want.n == "host" then v = "" end
        if not v or not fits(want, v) then ok = false break end
      end
    end
    if ok and r.q then
      values = values or query(txn.sf:query())
      for _, want in ipairs(r.q) do
        local v = values[want.n]
        if not v or not fits(want, v) then ok = false break end
      end
    end
    if ok then return r, headers end
  end
end

local function decide(txn)
  local program = load(get(txn, "v"))
  txn:unset_var("txn.v")
  if not program then
    txn:set_var("txn.v", "e503")
    return
  end
  local r, headers = first(txn, program, get(txn, "path"))
  if not r then return end
  txn:set_priv({rule = r, headers = headers or txn.http:req_get_headers()})
  txn:set_var("txn.v", "l")
  if r.a.maxBody then txn:set_var("txn.bounded", 1) end
end

-- maps are those of the configuration, for paths that have another reading.
local maps = {}
for id in (os.getenv("FAIRWAY_SOCKETS") or ""):gmatch("%S+") do
  local file = os.getenv("FAIRWAY_MAPS") .. "/" .. id
  maps[id] = {exact = Map.new(file .. "x.map", Map._str), below = Map.new(file .. "p.map", Map._beg)}
end

-- found is the rule, or the backend's name, that a path leads to.
local function found(txn, path)
  local m, host = maps[get(txn, "maps")], get(txn, "host")
  local keys = {host}
  for i = 2, #host do
    if host:sub(i, i) == "." then
      keys[#keys + 1] = "*" .. host:sub(i)
      if get(txn, "label") ~= "" then break end -- for which alone an asterisk stands
    end
  end
  keys[#keys + 1] = "*"
  for _, key in ipairs(keys) do
    local at = get(txn, "l") .. "|" .. key .. "|" .. path
    local v = m.exact:lookup(at) or m.below:lookup(at .. "/")
    if v and v:sub(1, 1) ~= "l" then return {a = {backends = {{w = 1, n = v}}}} end
    local r = v and first(txn, load(v) or {}, path)
    if r then return r end
  end
end

local function equal(x, y)
  if type(x) ~= "table" or type(y) ~= "table" then return x == y end
  for k, v in pairs(x) do
    if not equal(v, y[k]) then return false end
  end
  for k in pairs(y) do
    if x[k] == nil then return false end
  end
  return true
end

-- edits reports whether what an action does to the path depends on the match.
local function edits(a)
  if a.rewrite and a.rewrite.path or a.redirect and a.redirect.path then return true end
  for _, b in ipairs(a.backends or {}) do
    if b.rewrite and b.rewrite.path or b.redirect and b.redirect.path then return true end
  end
  return false
end

local reasons = {
  [204] = "No Content", [301] = "Moved Permanently", [302] = "Found", [303] = "See Other", [307] = "Temporary Redirect", [308] = "Permanent Redirect",
  [400] = "Bad Request", [401] = "Unauthorized", [403] = "Forbidden", [404] = "Not Found", [411] = "Length Required", [413] = "Request Entity Too Large", [500] = "Internal Server Error", [502] = "Bad Gateway",
}

local function answer(txn, status, headers, body)
  local reply = txn:reply{status = status, reason = reasons[status]}
  for _, h in ipairs(headers or {}) do reply:add_header(h[1], (h[2]:gsub("[\r\n%z]", " "))) end -- a value is one line
  if status ~= 204 then
    reply:add_header("content-type", "text/plain; charset=utf-8")
    reply:set_body(body or (reasons[status] or tostring(status)) .. "\n")
  end
  txn:done(reply)
end

local function rooted(path)
  if path:sub(1, 1) ~= "/" then return "/" .. path end
  return path
end

local function edited(edit, path, rule)
  if edit.groups and rule.re then
    local ok, caps = search(rule.re, path, true)
    if not ok then return path end
    local out = {}
    for _, part in ipairs(edit.groups) do
      if type(part) == "number" then
        local from, to = caps[2 * part], caps[2 * part + 1]
        out[#out + 1] = from and to and path:sub(from, to - 1) or ""
      else
        out[#out + 1] = part
      end
    end
    return rooted(table.concat(out))
  end
  if edit.full then return rooted(edit.v) end
  local rest = path:sub(#(rule.prefix or "") + 1)
  if rest == "" then return rooted(edit.v) end
  return rooted((edit.v:gsub("/$", "", 1)) .. rest)
end

-- scheme is the one by which the client came; a trusted proxy says so, if there is one.
local function scheme_of(txn)
  local own = "http"
  if txn.sf:ssl_fc() == "1" or txn.sf:ssl_fc() == 1 or get(txn, "tls") == "1" then own = "https" end
  local told = get(txn, "scheme")
  if told ~= "" then return told, told ~= own end
  return own, false
end

local function location(txn, d, rule)
  if d.whole and d.whole:sub(1, 1) ~= "/" then return d.whole end
  local host, path, port = get(txn, "host"), get(txn, "path"), d.own
  local scheme, other = scheme_of(txn)
  if other then port = 0 end -- the client's port is the proxy's
  if host == "-" then host = "" end
  if d.scheme then scheme, port = d.scheme, 0 end
  if d.port then port = d.port end
  if d.host then host = d.host end
  if d.path then path = edited(d.path, path, rule) end
  if port ~= 0 and (scheme ~= "http" or port ~= 80) and (scheme ~= "https" or port ~= 443) then host = host .. ":" .. port end
  local q = txn.sf:query()
  if d.whole then path = d.whole elseif q ~= "" then path = path .. "?" .. q end
  if d.relative then return path end
  return scheme .. "://" .. host .. path
end

-- Addresses and ranges are compared as hexadecimal digits.
local function within(ranges, client)
  for _, r in ipairs(ranges) do
    local digits, bits = r[1], r[2]
    if #digits == #client then
      local whole = bits // 4
      if digits:sub(1, whole) == client:sub(1, whole) then
        local rest = bits % 4
        if rest == 0 then return true end
        local shift = 4 - rest
        if tonumber(digits:sub(whole + 1, whole + 1), 16) >> shift == tonumber(client:sub(whole + 1, whole + 1), 16) >> shift then return true end
      end
    end
  end
  return false
end

local function originFits(pattern, origin, oneLabel)
  if pattern.all then return true end
  if pattern.exact then return pattern.exact == origin:lower() end
  return #origin > #pattern[1] + #pattern[2] and origin:sub(1, #pattern[1]) == pattern[1] and (pattern[2] == "" or origin:sub(-#pattern[2]) == pattern[2])
    and not (oneLabel and origin:sub(#pattern[1] + 1, #origin - #pattern[2]):find("[.:/@]"))
end

-- mayAsk reports whether an origin may; none is any where that is the same.
local function mayAsk(c, origin)
  if origin == "" then return c.literal and c.all end
  for _, p in ipairs(c.origins) do
    if originFits(p, origin, c.literal) then return true end
  end
  return false
end

-- allowed lists what an answer to an origin's script says.
local function allowed(c, origin)
  if not mayAsk(c, origin) then return nil end
  local out = {}
  if c.all and (c.literal or not c.credentials) then
    origin = "*"
  else
    out[#out + 1] = {"vary", "Origin"}
  end
  out[#out + 1] = {"access-control-allow-origin", origin}
  if c.credentials then out[#out + 1] = {"access-control-allow-credentials", "true"} end
  if c.expose then out[#out + 1] = {"access-control-expose-headers", c.expose} end
  return out
end

local function preflight(txn, c, headers)
  local origin, wanted = header(headers, "origin") or "", header(headers, "access-control-request-method") or ""
  if txn.sf:method() ~= "OPTIONS" or (origin == "" or wanted == "") and not (c.literal and mayAsk(c, origin)) then return false end
  local out = allowed(c, origin)
  if out then
    local function name(list, all, asked)
      if all and c.credentials then return asked end
      return list
    end
    local methods = name(c.methods, c.anyMethod, wanted)
    local names = name(c.headers, c.anyHeader, header(headers, "access-control-request-headers") or "")
    if methods and methods ~= "" then out[#out + 1] = {"access-control-allow-methods", methods} end
    if names and names ~= "" then out[#out + 1] = {"access-control-allow-headers", names} end
    if c.age then out[#out + 1] = {"access-control-max-age", c.age} end
  end
  answer(txn, 204, out)
  return true
end

-- guarded answers who isn't let in.
local function guarded(txn, a, headers)
  local client = get(txn, "src")
  local said = a.cors and allowed(a.cors, header(headers, "origin") or "") or {} -- so that a script sees the status
  if a.deny and within(a.deny, client) or a.allow and not within(a.allow, client) then
    answer(txn, 403, said)
    return true
  end
  if a.maxBody then
    local length, coding = header(headers, "content-length"), header(headers, "transfer-encoding")
    if length then
      if (tonumber(length) or 0) > a.maxBody then answer(txn, 413) return true end
    elseif get(txn, "whole") ~= "" and tonumber(get(txn, "whole")) > a.maxBody then
      answer(txn, 413)
      return true
    elseif get(txn, "whole") ~= "" and tonumber(get(txn, "whole")) + 2 * (#txn.sf:req_hdrs() + #txn.sf:url()) < 11000 then
      -- all of it has come: there was room for more beside the headers (tune.bufsize)
    elseif coding or get(txn, "body") ~= "" then
      answer(txn, 411)
      return true
    end
  end
  if a.auth then
    local given = header(headers, "authorization") or ""
    local code = given:match("^[Bb][Aa][Ss][Ii][Cc] (.*)$")
    local user, password
    if code then
      local plain = txn.c:b64dec(code)
      if plain then user, password = plain:match("^([^:]*):(.*)$") end
    end
    local want = user and a.auth.users[user]
    if not want or txn.c:base64(txn.c:sha1(password)) ~= want then
      said[#said + 1] = {"www-authenticate", a.auth.challenge}
      answer(txn, 401, said)
      return true
    end
  end
  return false
end

local function choose(list)
  local n = 0
  for _, b in ipairs(list) do n = n + b.w end
  n = math.random(0, n - 1)
  for _, b in ipairs(list) do
    if n < b.w then return b end
    n = n - b.w
  end
end

-- unfold removes headers that programs take for one that is set here.
local function unfold(txn, edit, headers)
  for name in pairs(headers) do
    if name:find("[_.]") then
      local folded = name:gsub("[_.]", "-")
      for _, list in ipairs({edit.set or {}, edit.add or {}, edit.del or {}}) do
        for _, h in ipairs(list) do
          if (type(h) == "table" and h[1] or h) == folded then txn.http:req_del_header(name) end
        end
      end
    end
  end
end

local function change(txn, edit, headers)
  local http = txn.http
  unfold(txn, edit, headers)
  for _, h in ipairs(edit.set or {}) do http:req_set_header(h[1], h[2]) end
  for _, h in ipairs(edit.add or {}) do http:req_add_header(h[1], h[2]) end
  for _, name in ipairs(edit.del or {}) do http:req_del_header(name) end
end

-- normalized is the normal form of a path, and its other reading if it has one.
local function normalized(path)
  local hidden = false
  local plain = path:gsub("%%(%x?%x?)", function(digits)
    if #digits < 2 then return "%25" .. digits end
    local c = string.char(tonumber(digits, 16))
    if c:match("[%w._~-]") then return c end
    hidden = hidden or c == "/" or c == "\\"
    return "%" .. digits:upper()
  end):gsub("\\", function()
    hidden = true
    return "%5C"
  end)
  local function resolved(text)
    local out, last = {}, ""
    for part in (text .. "/"):gmatch("([^/]*)/") do
      last = part
      if part == ".." then
        out[#out] = nil
      elseif part ~= "" and part ~= "." then
        out[#out + 1] = part
      end
    end
    if #out > 0 and (last == "" or last == "." or last == "..") then out[#out + 1] = "" end
    return "/" .. table.concat(out, "/")
  end
  if not hidden then return resolved(plain), nil end
  return resolved(plain), resolved((plain:gsub("%%2F", "/"):gsub("%%5C", "/")))
end

-- identify says what the client's certificate is; see ingress/policy.
local function identify(txn, identity, headers)
  local http = txn.http
  for name in pairs(headers) do
    if name:gsub("[_.]", "-"):sub(1, 11) == "ssl-client-" then http:req_del_header(name) end
  end
  local used = txn.sf:ssl_c_used()
  if used ~= 1 and used ~= "1" and used ~= true then return http:req_set_header("ssl-client-verify", "NONE") end
  http:req_set_header("ssl-client-verify", "SUCCESS")
  http:req_set_header("ssl-client-subject-dn", txn.sf:ssl_c_s_dn("", 0, "rfc2253"))
  http:req_set_header("ssl-client-issuer-dn", txn.sf:ssl_c_i_dn("", 0, "rfc2253"))
  if not identity.whole then return end
  local lines = {"-----BEGIN CERTIFICATE-----"}
  for line in txn.c:base64(txn.sf:ssl_c_der()):gmatch(("."):rep(64, "?")) do
    if line ~= "" then lines[#lines + 1] = line end
  end
  lines[#lines + 1] = "-----END CERTIFICATE-----\n"
  http:req_set_header("ssl-client-cert", (table.concat(lines, "\n"):gsub("[^%w._~-]", function(c) return string.format("%%%02X", c:byte()) end)))
end

local function rewrite(txn, list, rule)
  local path = get(txn, "path")
  local before = path
  for _, r in ipairs(list) do
    if r.host then txn.http:req_set_header("host", r.host) end
    if r.path then -- which ends where the request's line would
      path = normalized(edited(r.path, path, rule)):gsub("[%c #?\127-\255]", function(c) return string.format("%%%02X", c:byte()) end)
    end
  end
  if path ~= before then txn.http:req_set_path(path) end
end

local function cookie(headers, name)
  local all = headers["cookie"]
  if not all then return "" end
  local i = 0
  while all[i] do
    for part in all[i]:gmatch("[^;]+") do
      local k, v = part:match("^%s*([^=]*)=(.-)%s*$")
      if k == name then return (v:gsub('^"(.*)"$', "%1")) end
    end
    i = i + 1
  end
  return ""
end

-- session is the name of the server that a client says it stays with; "" if it says none.
local function session(headers, affinity)
  if affinity.header then return header(headers, affinity.header) or "" end
  return cookie(headers, affinity.name)
end

-- stays is the backend that has the client's server; nil if none has.
local function stays(txn, a, given)
  if not a.affinity or a.affinity.loose or given == "" then return nil end
  for _, b in ipairs(a.backends) do
    local ok, up = pcall(function() return b.n and txn.sf:srv_is_up(b.n .. "/" .. given) end) -- which fails where there is none
    if ok and (up == 1 or up == "1" or up == true) then return b end
  end
end

local function act(txn)
  local state = txn:get_priv()
  local rule, headers = state.rule, state.headers
  local a = rule.a
  if a.https and scheme_of(txn) ~= "https" then
    return answer(txn, a.https, {{"location", location(txn, {scheme = "https", own = 0}, rule)}})
  end
  if a.cors and preflight(txn, a.cors, headers) then return end
  if guarded(txn, a, headers) then return end
  if a.status then return answer(txn, a.status) end
  if a.redirect then return answer(txn, a.redirect.status, {{"location", location(txn, a.redirect, rule)}}) end
  if a.affinity then
    state.given = session(headers, a.affinity)
    if not state.given:match("^[%w_]+$") then state.given = "" end
  end
  local b = stays(txn, a, state.given) or choose(a.backends)
  if a.fallback and (b.nowhere or b.n and tonumber(txn.sf:nbsrv(b.n)) == 0) then b = a.fallback end
  if b.status then return answer(txn, b.status) end
  if b.redirect then return answer(txn, b.redirect.status, {{"location", location(txn, b.redirect, rule)}}) end
  if b.cors and preflight(txn, b.cors, headers) then return end
  local rewrites = {}
  if a.rewrite then rewrites[#rewrites + 1] = a.rewrite end
  if b.rewrite then rewrites[#rewrites + 1] = b.rewrite end
  if #rewrites > 0 then rewrite(txn, rewrites, rule) end
  if a.identity then identify(txn, a.identity, headers) end
  if a.request then change(txn, a.request, headers) end
  if b.request then change(txn, b.request, headers) end
  if a.timeout then txn:set_var("txn.to", a.timeout) end
  if a.affinity and state.given ~= "" then txn:set_var("txn.s", state.given) end
  state.chosen = b
  txn:set_var("txn.v", b.n)
  if a.response or b.response or a.cors or b.cors or a.affinity then txn:set_var("txn.r", 1) end
end

local function respond(txn)
  local state = txn:get_priv()
  if not state or not state.chosen then return end
  local a, b, http = state.rule.a, state.chosen, txn.http
  for _, c in ipairs({a.cors or b.cors, a.cors and b.cors or nil}) do
    for name in pairs(http:res_get_headers()) do
      if name:sub(1, 15) == "access-control-" then http:res_del_header(name) end
    end
    for _, h in ipairs(allowed(c, header(state.headers, "origin") or "") or {}) do
      if h[1] == "vary" then http:res_add_header(h[1], h[2]) else http:res_set_header(h[1], h[2]) end
    end
  end
  for _, edit in ipairs({a.response or b.response, a.response and b.response or nil}) do
    for _, h in ipairs(edit.set or {}) do http:res_set_header(h[1], h[2]) end
    for _, h in ipairs(edit.add or {}) do http:res_add_header(h[1], h[2]) end
    for _, name in ipairs(edit.del or {}) do http:res_del_header(name) end
  end
  if a.affinity then
    local server = txn.sf:srv_name()
    if server ~= "" and server ~= state.given then
      if a.affinity.header then
        http:res_set_header(a.affinity.header, server)
      else
        http:res_add_header("set-cookie", a.affinity.name .. "=" .. server .. a.affinity.attributes)
      end
    end
  end
end

-- normal puts a path into its normal form (ingress/policy, Path).
local function normal(txn)
  local path = txn.sf:path()
  local full, other = normalized(path)
  txn:set_var("txn.path", full)
  if other then txn:set_var("txn.other", other) end
  if full ~= path then txn.http:req_set_path(full) end
end

-- certain refuses a path whose other reading leads elsewhere.
local function certain(txn)
  local v, state = get(txn, "v"), txn:get_priv()
  local rule
  if v == "l" then rule = state.rule elseif v ~= "" then rule = {a = {backends = {{w = 1, n = v}}}} end
  local other = found(txn, get(txn, "other"))
  local same = rule == other
  if rule and other then
    same = equal(rule.a, other.a) and (not edits(rule.a) or rule.prefix == other.prefix and equal(rule.re, other.re))
  end
  if not same then answer(txn, 400) end
end

-- hop removes headers that are about one connection only (RFC 9110, 7.6.1).
local kept = {["host"] = true, ["content-length"] = true, ["transfer-encoding"] = true, ["upgrade"] = true}
local function hop(txn)
  local all = txn.http:req_get_headers()["connection"]
  local i = 0
  while all and all[i] do
    for name in all[i]:gmatch("[^,%s]+") do
      name = name:lower()
      if not kept[name] then txn.http:req_del_header(name) end
    end
    i = i + 1
  end
end

-- hex writes an address as hexadecimal digits; "" if it is none.
local function hex(text)
  text = text:match("^::[fF][fF][fF][fF]:(%d+%.%d+%.%d+%.%d+)$") or text
  local a, b, c, d = text:match("^(%d+)%.(%d+)%.(%d+)%.(%d+)$")
  if a then
    local out = ""
    for _, n in ipairs({a, b, c, d}) do
      if #n > 3 or tonumber(n) > 255 then return "" end
      out = out .. string.format("%02X", tonumber(n))
    end
    return out
  end
  if not text:match("^[%x:]+$") then return "" end
  local function groups(half)
    local out = {}
    for g in half:gmatch("[^:]+") do
      if #g > 4 then return nil end
      out[#out + 1] = string.format("%04X", tonumber(g, 16))
    end
    return out
  end
  local from, to = text:find("::", 1, true)
  local left = groups(from and text:sub(1, from - 1) or text)
  local right = groups(from and text:sub(to + 1) or "")
  if not left or not right or (from and #left + #right > 7) or (not from and #left ~= 8) then return "" end
  return table.concat(left) .. string.rep("0000", 8 - #left - #right) .. table.concat(right)
end

-- client is the address that trusted proxies tell.
local function client(txn)
  local trusted = load("trusted")
  local chain, last = header(txn.http:req_get_headers(), "x-forwarded-for") or "", nil
  local list = {}
  for part in chain:gmatch("[^,]+") do list[#list + 1] = part:match("^%s*(.-)%s*$") end
  for i = #list, 1, -1 do
    local digits = hex(list[i])
    if digits == "" then break end
    last = {list[i], digits}
    if not within(trusted, digits) then break end
  end
  if last then
    txn:set_var("txn.client", last[1])
    txn:set_var("txn.src", last[2])
  end
end

-- stream chooses among several backends of a stream.
local function stream(txn)
  local program = load(get(txn, "v"))
  local r = program and program[1]
  local b = r and not r.a.status and choose(r.a.backends)
  if b and not b.status then txn:set_var("txn.v", b.n) else txn:unset_var("txn.v") end
end

core.register_action("decide", {"http-req"}, decide)
core.register_action("act", {"http-req"}, act)
core.register_action("respond", {"http-res"}, respond)
core.register_action("normal", {"http-req"}, normal)
core.register_action("certain", {"http-req"}, certain)
core.register_action("hop", {"http-req"}, hop)
core.register_action("client", {"http-req"}, client)
core.register_action("stream", {"tcp-req"}, stream)
