#include "store/json_text.h"

#include <boost/json.hpp>

#include "base/bytes.h"

namespace sandbar::store {
namespace {

namespace json = boost::json;

constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

std::string Base64Url(std::string_view in) {
  std::string out;
  uint32_t bits = 0;
  int have = 0;
  for (char c : in) {
    bits = (bits << 8) | static_cast<unsigned char>(c);
    have += 8;
    while (have >= 6) out += kAlphabet[(bits >> (have -= 6)) & 63];
  }
  if (have > 0) out += kAlphabet[(bits << (6 - have)) & 63];
  return out;
}

std::optional<std::string> FromBase64Url(std::string_view in) {
  std::string out;
  uint32_t bits = 0;
  int have = 0;
  for (char c : in) {
    size_t at = kAlphabet.find(c);
    if (at == std::string_view::npos) return std::nullopt;
    bits = (bits << 6) | static_cast<uint32_t>(at);
    have += 6;
    if (have >= 8) out += static_cast<char>((bits >> (have -= 8)) & 255);
  }
  return out;
}

std::unexpected<Error> Damaged() {
  return Fail(Code::kInternal, "database: a JSON column is damaged");
}

Result<json::value> Parse(std::string_view text) {
  boost::system::error_code ec;
  json::value v = json::parse(json::string_view(text.data(), text.size()), ec);
  if (ec) return Damaged();
  return v;
}

std::string_view View(const json::string& s) {
  return {s.data(), s.size()};
}

}  // namespace

std::string ToJson(const std::map<std::string, std::string>& v) {
  json::object o;
  for (const auto& [k, val] : v) o[k] = val;
  return json::serialize(o);
}

std::string ToJson(const std::vector<std::string>& v) {
  json::array a;
  for (const auto& s : v) a.emplace_back(s);
  return json::serialize(a);
}

std::string ToJson(const std::vector<PortRoute>& v) {
  json::array a;
  for (const PortRoute& r : v) {
    json::object o{{"port", r.port}, {"subdomain", r.subdomain}};
    if (!r.token.empty()) o["token"] = r.token;
    a.push_back(std::move(o));
  }
  return json::serialize(a);
}

std::string ToJson(const std::map<std::string, Mount>& v) {
  json::object o;
  for (const auto& [path, mount] : v) o[path] = json::object{{"drive", mount.drive}, {"mode", mount.mode}};
  return json::serialize(o);
}

std::string ToJson(const std::vector<SessionMount>& v) {
  json::array a;
  for (const SessionMount& m : v)
    a.push_back(json::object{{"path", m.path}, {"drive", m.drive}, {"writable", m.writable}, {"state", m.state}});
  return json::serialize(a);
}

std::optional<std::string> ToJson(const std::optional<KeepLastSnapshots>& v) {
  if (!v) return std::nullopt;
  json::object o;
  o["count"] = v->count;
  if (v->expiration_ms) o["expiration"] = *v->expiration_ms;
  o["deleteEvicted"] = v->delete_evicted;
  return json::serialize(o);
}

Result<> FromJson(std::string_view text, std::map<std::string, std::string>& out) {
  SB_TRY(json::value v, Parse(text));
  if (!v.is_object()) return Damaged();
  for (const auto& item : v.get_object()) {
    if (!item.value().is_string()) return Damaged();
    out.emplace(std::string(item.key().data(), item.key().size()), View(item.value().get_string()));
  }
  return {};
}

Result<> FromJson(std::string_view text, std::vector<std::string>& out) {
  SB_TRY(json::value v, Parse(text));
  if (!v.is_array()) return Damaged();
  for (const auto& item : v.get_array()) {
    if (!item.is_string()) return Damaged();
    out.emplace_back(View(item.get_string()));
  }
  return {};
}

Result<> FromJson(std::string_view text, std::vector<PortRoute>& out) {
  SB_TRY(json::value v, Parse(text));
  if (!v.is_array()) return Damaged();
  for (const auto& item : v.get_array()) {
    const auto* o = item.if_object();
    const auto* port = o != nullptr ? o->if_contains("port") : nullptr;
    const auto* subdomain = o != nullptr ? o->if_contains("subdomain") : nullptr;
    if (port == nullptr || !port->is_int64() || subdomain == nullptr || !subdomain->is_string()) return Damaged();
    PortRoute route{static_cast<int>(port->get_int64()), std::string(View(subdomain->get_string())), ""};
    if (const auto* token = o->if_contains("token"); token != nullptr && token->is_string()) {
      route.token = View(token->get_string());
    }
    out.push_back(std::move(route));
  }
  return {};
}

Result<> FromJson(std::string_view text, std::map<std::string, Mount>& out) {
  SB_TRY(json::value v, Parse(text));
  if (!v.is_object()) return Damaged();
  for (const auto& item : v.get_object()) {
    const auto* o = item.value().if_object();
    const auto* drive = o != nullptr ? o->if_contains("drive") : nullptr;
    const auto* mode = o != nullptr ? o->if_contains("mode") : nullptr;
    if (drive == nullptr || !drive->is_string() || mode == nullptr || !mode->is_string()) return Damaged();
    out[std::string(item.key())] = {std::string(View(drive->get_string())), std::string(View(mode->get_string()))};
  }
  return {};
}

Result<> FromJson(std::string_view text, std::vector<SessionMount>& out) {
  SB_TRY(json::value v, Parse(text));
  if (!v.is_array()) return Damaged();
  for (const auto& item : v.get_array()) {
    const auto* o = item.if_object();
    const auto* path = o != nullptr ? o->if_contains("path") : nullptr;
    const auto* drive = o != nullptr ? o->if_contains("drive") : nullptr;
    const auto* writable = o != nullptr ? o->if_contains("writable") : nullptr;
    const auto* state = o != nullptr ? o->if_contains("state") : nullptr;
    if (path == nullptr || !path->is_string() || drive == nullptr || !drive->is_string()) return Damaged();
    if (writable == nullptr || !writable->is_bool() || state == nullptr || !state->is_int64()) return Damaged();
    out.push_back({std::string(View(path->get_string())), std::string(View(drive->get_string())), writable->get_bool(),
                   state->get_int64()});
  }
  return {};
}

Result<> FromJson(const std::optional<std::string>& text, std::optional<KeepLastSnapshots>& out) {
  if (!text) return {};
  SB_TRY(json::value v, Parse(*text));
  if (!v.is_object()) return Damaged();
  const json::object& o = v.get_object();
  KeepLastSnapshots keep;
  if (const auto* n = o.if_contains("count"); n != nullptr && n->is_int64())
    keep.count = static_cast<int>(n->get_int64());
  if (const auto* n = o.if_contains("expiration"); n != nullptr && n->is_int64()) keep.expiration_ms = n->get_int64();
  if (const auto* b = o.if_contains("deleteEvicted"); b != nullptr && b->is_bool()) keep.delete_evicted = b->get_bool();
  out = keep;
  return {};
}

std::string EncodeCursor(const Cursor& cursor) {
  ByteWriter w;
  w.U8(1);
  w.Str(cursor.listing);
  w.Str(cursor.text);
  w.I64(cursor.number);
  w.I64(cursor.row);
  return Base64Url(w.str());
}

Result<Cursor> DecodeCursor(std::string_view encoded, std::string_view listing) {
  auto raw = encoded.size() <= 1024 ? FromBase64Url(encoded) : std::nullopt;
  ByteReader r(raw ? std::string_view(*raw) : std::string_view{});
  Cursor c;
  uint8_t version = r.U8();
  c.listing = r.Str(64);
  c.text = r.Str(256);
  c.number = r.I64();
  c.row = r.I64();
  if (!r.Done() || version != 1) return Fail(Code::kBadRequest, "cursor: not a cursor of this server");
  if (c.listing != listing) return Fail(Code::kBadRequest, "cursor: belongs to a listing with another order");
  return c;
}

}  // namespace sandbar::store
