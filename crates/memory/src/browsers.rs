//! The repository of browsers.

use async_trait::async_trait;
use casement_domain::browser::{Browser, BrowserEvent, BrowserRepository, BrowserState};
use casement_domain::{BrowserId, NodeId, StoreError};

use crate::Memory;

#[async_trait]
impl BrowserRepository for Memory {
    async fn find(&self, id: BrowserId) -> Result<Option<Browser>, StoreError> {
        Ok(self.state().browsers.get(&id).cloned())
    }

    async fn of_node(&self, node: NodeId) -> Result<Vec<Browser>, StoreError> {
        Ok(self.state().browsers.values().filter(|row| row.node == node).cloned().collect())
    }

    async fn discard(&self, id: BrowserId) -> Result<bool, StoreError> {
        let mut state = self.state();
        let leased = state.browsers.get(&id).is_some_and(|row| row.state == BrowserState::Leased);
        Ok(!leased && state.browser_on(id, BrowserEvent::End))
    }

    async fn forget(&self, id: BrowserId) -> Result<(), StoreError> {
        self.state().browsers.remove(&id);
        Ok(())
    }
}
