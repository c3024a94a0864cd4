//! Matching of directives and territories.

use crate::store::types::{ClassRequirements, Offer, TerritoryFacts};
use nexus_api::conduits::Capacity;
use nexus_model::ids::TerritoryId;

/// Returns the profiles of an offer that the health of the drivers allows.
#[must_use]
pub fn healthy_profiles(offered: &[String], capacity: &Capacity) -> Vec<String> {
    let supported = |profile: &String| capacity.supported_profiles.as_ref().is_none_or(|list| list.contains(profile));
    let healthy = |profile: &String| {
        let Some(health) = &capacity.sandbox_health else { return true };
        let driver = match profile.as_str() {
            "untrusted" => capacity.untrusted_driver.as_deref(),
            other => Some(other),
        };
        match driver {
            Some(driver) => health.get(driver).is_none_or(|health| health.healthy),
            // The daemon does not say which driver runs the profile: one healthy driver is enough.
            None => health.is_empty() || health.values().any(|health| health.healthy),
        }
    };
    offered.iter().filter(|profile| supported(profile) && healthy(profile)).cloned().collect()
}

/// Returns the number of directives that a territory may hold.
#[must_use]
pub fn room(capacity: &Capacity, offer: &Offer) -> u32 {
    capacity.max_concurrent.unwrap_or(0).max(offer.max)
}

/// Returns whether a territory can run directives of a class.
#[must_use]
pub fn fits(class: &ClassRequirements, territory: &TerritoryFacts) -> bool {
    territory.profiles.contains(&class.profile)
        && territory.labels.contain(&class.labels)
        && class.guarantees.iter().all(|wanted| territory.guarantees.contains(wanted))
}

/// Returns the sentence that says why a ready directive waits.
#[must_use]
pub fn queued_because(class: &ClassRequirements, pin: Option<TerritoryId>, territories: &[TerritoryFacts]) -> String {
    let here: Vec<&TerritoryFacts> =
        territories.iter().filter(|territory| pin.is_none_or(|pin| pin == territory.id)).collect();
    if let Some(pin) = pin {
        match here.first() {
            None => return format!("The facility lies on the territory {pin}, which does not exist any more."),
            Some(territory) if !territory.active => {
                return format!("The facility lies on the territory {pin}, which takes no new directives.");
            }
            Some(territory) if !territory.online => {
                return format!("The facility lies on the territory {pin}, which is offline.");
            }
            Some(_) => {}
        }
    }
    let online: Vec<&&TerritoryFacts> = here.iter().filter(|territory| territory.active && territory.online).collect();
    if online.is_empty() {
        return "No territory is online.".to_owned();
    }
    let with_profile: Vec<_> = online.iter().filter(|territory| territory.profiles.contains(&class.profile)).collect();
    if with_profile.is_empty() {
        return format!("No territory that is online offers the sandbox profile {}.", class.profile);
    }
    let with_labels: Vec<_> = with_profile.iter().filter(|territory| territory.labels.contain(&class.labels)).collect();
    if with_labels.is_empty() {
        let labels: Vec<String> = class.labels.0.iter().map(|(name, value)| format!("{name}={value}")).collect();
        return format!("No territory that is online has the labels {}.", labels.join(", "));
    }
    let fitting: Vec<_> = with_labels.iter().filter(|territory| fits(class, territory)).collect();
    if fitting.is_empty() {
        return format!("No territory that is online gives the guarantees {}.", class.guarantees.join(", "));
    }
    if fitting.iter().all(|territory| territory.open >= territory.capacity.max(1)) {
        return "Every territory that fits is full.".to_owned();
    }
    "A territory that fits has not asked for work yet.".to_owned()
}

#[cfg(test)]
#[path = "matching_tests.rs"]
mod tests;
