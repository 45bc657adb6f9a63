// The tables of scenarios, one function per file of this folder.
#pragma once
#include <span>

#include "training/scenarios/scenario.h"

namespace assay::training {

using ScenarioTable = std::span<const Scenario> (*)();

std::span<const Scenario> role_scenarios();         // S-01 to S-05, S-11
std::span<const Scenario> factory_scenarios();      // S-06, S-12
std::span<const Scenario> recipe_scenarios();       // S-07 to S-10
std::span<const Scenario> state_scenarios();        // S-79 to S-81
std::span<const Scenario> quantizer_scenarios();    // S-13 to S-19
std::span<const Scenario> hybrid_scenarios();       // S-20 to S-29
std::span<const Scenario> linear_scenarios();       // S-30 to S-35
std::span<const Scenario> numerics_scenarios();     // S-36 to S-39, S-84
std::span<const Scenario> identity_scenarios();     // S-40 to S-43
std::span<const Scenario> module_scenarios();       // S-44 to S-46, S-82, S-83
std::span<const Scenario> usage_scenarios();        // S-53 to S-55
std::span<const Scenario> amax_group_scenarios();   // S-56 to S-60
std::span<const Scenario> grouped_scenarios();      // S-67 to S-72, S-77
std::span<const Scenario> expert_scenarios();       // S-73 to S-76, S-78, S-85

// Rows are added as files arrive.
inline constexpr ScenarioTable kScenarioTables[] = {
    role_scenarios,
    factory_scenarios,
    recipe_scenarios,
    state_scenarios,
    linear_scenarios,
    numerics_scenarios,
    identity_scenarios,
    module_scenarios,
    quantizer_scenarios,
    hybrid_scenarios,
    usage_scenarios,
    amax_group_scenarios,
    grouped_scenarios,
    expert_scenarios,
};

}  // namespace assay::training
