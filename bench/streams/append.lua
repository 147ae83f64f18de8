-- Appends for wrk. STREAMS: how many streams, in turns; BATCH: messages of 200 bytes in one request.
local streams = tonumber(os.getenv("STREAMS"))
local batch = tonumber(os.getenv("BATCH"))
local bodies = {}
math.randomseed(7)
for i = 1, 64 do
  local messages = {}
  for j = 1, batch do
    local text = string.format('{"id":%d,"kind":"order","customer":"c-%06d","note":"', math.random(1000000), math.random(999999))
    local noise = {}
    for k = 1, 198 - #text do noise[k] = string.char(97 + math.random(0, 25)) end
    messages[j] = text .. table.concat(noise) .. '"}'
  end
  bodies[i] = batch == 1 and messages[1] or "[" .. table.concat(messages, ",") .. "]"
end
local at = 0
request = function()
  at = at + 1
  local path = "/v1/stream/s" .. (at * 7 % streams)
  return wrk.format("POST", path, {["content-type"] = "application/json"}, bodies[at % 64 + 1])
end
