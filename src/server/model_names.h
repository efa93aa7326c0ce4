#pragma once
#include <string>

#include "src/server/served_model.h"

namespace canopy::server {

/// Throws ApiError 404: the model has not that name. `options` has those that it has.
void check_model(const ServiceOptions& options, const std::string& asked);

}  // namespace canopy::server
