//! What the HTTP layer promises, without a browser and without a database.

mod api;
mod relay;
