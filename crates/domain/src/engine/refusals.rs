//! The choice of a request's engine, and the refusals of what an engine cannot do.

use std::sync::Arc;

use super::{Capability, EngineDescription, EngineName, EngineRefused, Engines};
use crate::field::{FieldCode, InvalidValue};
use crate::not_supported::NotSupported;

/// Checks that the engine with this name supports a capability.
///
/// # Errors
/// [`EngineRefused`]; also for an engine that is no longer configured, which supports nothing.
pub fn check(engines: &dyn Engines, name: &EngineName, capability: Capability) -> Result<(), EngineRefused> {
    describe(engines, name).check(capability)
}

/// Returns the engine with this name, or one that supports nothing if it is no longer configured.
pub(crate) fn describe(engines: &dyn Engines, name: &EngineName) -> Arc<EngineDescription> {
    engines.find(name).unwrap_or_else(|| Arc::new(EngineDescription::gone(name.clone())))
}

/// Returns the engine that a request names, or the one of requests that name none.
///
/// # Errors
/// The rule of names that the text breaks; `not_allowed` if there is no such engine.
pub(crate) fn choose(engines: &dyn Engines, requested: Option<&str>) -> Result<Arc<EngineDescription>, InvalidValue> {
    let Some(text) = requested else { return Ok(engines.default_engine()) };
    let name = EngineName::parse(text)?;
    engines.find(&name).ok_or_else(|| {
        let names: Vec<String> = engines.all().iter().map(|engine| engine.name.to_string()).collect();
        InvalidValue::new(FieldCode::NotAllowed, format!("must be one of {}", names.join(", ")))
    })
}

/// Checks that an engine supports everything that a request asks for: its fields, each with the capability that it needs
/// and whether it asks for it.
///
/// # Errors
/// The refusal of the first field that the engine does not support.
pub(crate) fn check_fields(
    engine: &EngineDescription,
    fields: &[(&'static str, Capability, bool)],
) -> Result<(), NotSupported> {
    for &(field, capability, requested) in fields {
        if requested {
            engine.check(capability).map_err(|refused| refused.of(field))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::ConfiguredEngines;
    use super::*;

    fn engines() -> ConfiguredEngines {
        let grid = EngineDescription::webdriver(EngineName::parse("grid").expect("a name"), None);
        ConfiguredEngines::new(vec![EngineDescription::local(), grid]).expect("a set")
    }

    #[test]
    fn a_request_gets_the_engine_that_it_names_or_the_default_one() {
        assert_eq!(choose(&engines(), None).expect("the default").name, EngineName::LOCAL);
        assert_eq!(choose(&engines(), Some("grid")).expect("the grid").name.as_str(), "grid");
        let unknown = choose(&engines(), Some("moon")).expect_err("unknown");
        assert_eq!((unknown.code, unknown.message.as_str()), (FieldCode::NotAllowed, "must be one of local, grid"));
        assert_eq!(choose(&engines(), Some("Grid")).expect_err("bad").code, FieldCode::InvalidFormat);
    }

    #[test]
    fn only_what_a_request_asks_for_is_refused() {
        let grid = choose(&engines(), Some("grid")).expect("the grid");
        assert_eq!(check_fields(&grid, &[("stealth", Capability::Stealth, false)]), Ok(()));
        assert_eq!(check_fields(&grid, &[("viewport", Capability::Viewport, true)]), Ok(()));
        let fields = [("viewport", Capability::Viewport, true), ("stealth", Capability::Stealth, true)];
        assert_eq!(check_fields(&grid, &fields).expect_err("refused").field, "stealth");
    }

    #[test]
    fn an_engine_that_is_no_longer_configured_supports_nothing() {
        let gone = EngineName::parse("gone").expect("a name");
        let refused = check(&engines(), &gone, Capability::Cdp).expect_err("gone").to_string();
        assert_eq!(refused, "the engine gone does not support CDP: this installation no longer has the engine");
        assert_eq!(check(&engines(), &EngineName::LOCAL, Capability::Cdp), Ok(()));
    }
}
