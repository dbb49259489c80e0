// What projects have used, and what that would cost by the operator's own table of prices.
#include <algorithm>
#include <boost/json.hpp>

#include "api/api.h"
#include "api/call.h"
#include "api/handlers.h"

namespace sandbar::api {
namespace {

namespace json = boost::json;

constexpr double kMsPerHour = 3600e3;
constexpr double kBytesPerGb = 1e9;

double Cost(const Price& price, double amount) {
  return std::max(0.0, amount - price.free) * price.each;
}

json::object UsageJson(const store::ProjectUsage& u, const Prices& prices) {
  const double cpu = static_cast<double>(u.cpu_ms) / kMsPerHour;
  const double memory = static_cast<double>(u.memory_mb_ms) / 1024 / kMsPerHour;
  const double transfer = static_cast<double>(u.ingress + u.egress) / kBytesPerGb;
  const double creations = static_cast<double>(u.creations);
  json::object out{{"teamId", u.team},
                   {"projectId", u.project},
                   {"activeCpuDurationMs", u.cpu_ms},
                   {"memoryMbMs", u.memory_mb_ms},
                   {"ingressBytes", u.ingress},
                   {"egressBytes", u.egress},
                   {"creations", u.creations},
                   {"cpuHours", cpu},
                   {"memoryGbHours", memory},
                   {"transferGb", transfer}};
  if (prices.currency.empty()) return out;
  json::object cost{{"cpu", Cost(prices.cpu_hour, cpu)},
                    {"memory", Cost(prices.memory_gb_hour, memory)},
                    {"creations", Cost(prices.creation, creations)},
                    {"transfer", Cost(prices.transfer_gb, transfer)}};
  double sum = 0;
  for (const auto& part : cost) sum += part.value().as_double();
  cost["total"] = sum;
  cost["currency"] = prices.currency;
  out["cost"] = std::move(cost);
  return out;
}

}  // namespace

Task<> NativeUsage(Call* call) {
  auto projects = co_await call->domain->sandboxes->Usage(call->scope);
  if (!projects) co_return std::unexpected(std::move(projects).error());
  json::array rows;
  for (const store::ProjectUsage& usage : *projects) rows.emplace_back(UsageJson(usage, call->config->prices));
  json::object body{{"projects", std::move(rows)}};
  co_return co_await call->Reply(std::move(body));
}

}  // namespace sandbar::api
