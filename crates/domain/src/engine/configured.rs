//! The engines that the operator has configured.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{EngineDescription, EngineName, Engines};

/// The reason why a set of engines cannot be configured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineSetError {
    /// There is no engine.
    #[error("no engine is configured")]
    Empty,
    /// Two engines have the same name.
    #[error("two engines are named {0}")]
    Twice(EngineName),
}

/// A fixed set of engines.
#[derive(Clone, Debug)]
pub struct ConfiguredEngines {
    by_name: Arc<BTreeMap<EngineName, Arc<EngineDescription>>>,
    default: Arc<EngineDescription>,
}

impl ConfiguredEngines {
    /// Creates the set. Requests that name no engine get the local one, or the first of `engines` if there is no local one.
    ///
    /// # Errors
    /// [`EngineSetError`].
    pub fn new(engines: Vec<EngineDescription>) -> Result<Self, EngineSetError> {
        let engines: Vec<_> = engines.into_iter().map(Arc::new).collect();
        let local = engines.iter().find(|engine| engine.name.is_local());
        let default = Arc::clone(local.or(engines.first()).ok_or(EngineSetError::Empty)?);
        let mut by_name = BTreeMap::new();
        for engine in engines {
            if let Some(twice) = by_name.insert(engine.name.clone(), engine) {
                return Err(EngineSetError::Twice(twice.name.clone()));
            }
        }
        Ok(Self { by_name: Arc::new(by_name), default })
    }

    /// Returns the set that has the local engine only.
    #[must_use]
    pub fn local() -> Self {
        let local = Arc::new(EngineDescription::local());
        Self { by_name: Arc::new([(EngineName::LOCAL, Arc::clone(&local))].into()), default: local }
    }
}

impl Engines for ConfiguredEngines {
    fn all(&self) -> Vec<Arc<EngineDescription>> {
        let (local, others): (Vec<_>, Vec<_>) =
            self.by_name.values().cloned().partition(|engine| engine.name.is_local());
        local.into_iter().chain(others).collect()
    }

    fn find(&self, name: &EngineName) -> Option<Arc<EngineDescription>> {
        self.by_name.get(name).cloned()
    }

    fn default_engine(&self) -> Arc<EngineDescription> {
        Arc::clone(&self.default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> EngineDescription {
        EngineDescription::webdriver(EngineName::parse(name).expect("a name"), None)
    }

    #[test]
    fn requests_without_an_engine_get_the_local_one_or_the_first() {
        let both = ConfiguredEngines::new(vec![named("b"), EngineDescription::local(), named("a")]).expect("a set");
        assert!(both.default_engine().name.is_local());
        let names: Vec<String> = both.all().iter().map(|engine| engine.name.to_string()).collect();
        assert_eq!(names, ["local", "a", "b"]);
        let grids = ConfiguredEngines::new(vec![named("b"), named("a")]).expect("a set");
        assert_eq!(grids.default_engine().name.as_str(), "b");
    }

    #[test]
    fn a_set_of_engines_has_one_at_least_and_each_name_once() {
        assert_eq!(ConfiguredEngines::new(Vec::new()).expect_err("empty"), EngineSetError::Empty);
        let twice = ConfiguredEngines::new(vec![named("a"), named("a")]).expect_err("twice");
        assert_eq!(twice, EngineSetError::Twice(EngineName::parse("a").expect("a name")));
    }
}
