//! Tools that pages offer to agents by WebMCP, and tools that callers add to sessions.

mod custom;
mod model;
mod ports;
mod service;

pub use custom::{CustomTool, CustomToolKind, NewCustomTools};
pub use model::{CustomSource, EmbeddedFrame, NewToolCall, PageTool, ToolHints, ToolResult, ToolStatus};
#[cfg(feature = "mocks")]
pub use ports::MockToolMachine;
pub use ports::ToolMachine;
pub use service::PageTools;
