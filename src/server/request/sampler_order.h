#pragma once
#include "src/server/request/completion_request.h"
#include "src/server/request/fields.h"

namespace canopy::server {

/// Reads the orders of samplers that other servers have, once sampling itself is read: `samplers`,
/// `sampler_priority`, `sampler_order`, `temperature_last`. One that draws as the order here does
/// passes. One that clients send unasked becomes a warning of the request; any other is refused.
/// Throws ApiError 400.
void read_sampler_orders(Fields& fields, CompletionRequest& request);

}  // namespace canopy::server
