//! Bodies of the type `multipart/form-data`.

use std::path::Path;

use anyhow::Context as _;
use serde_json::{Map, Value};
use sha2::Digest as _;

use crate::client::{RequestBody, whole};
use crate::document::{Field, Kind};

/// The fields and files of a form.
#[derive(Default)]
pub(crate) struct Form {
    parts: Vec<(String, String, Vec<u8>)>,
}

impl Form {
    /// Returns the form with these fields. A folder is packed.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub(crate) fn of(fields: &[Field], values: &Map<String, Value>) -> anyhow::Result<Self> {
        let mut form = Self::default();
        for (name, value) in values {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let is_file = fields.iter().any(|field| field.name == *name && matches!(field.kind, Kind::File));
            if is_file { form.file(name, Path::new(&text))? } else { form.field(name, &text) }
        }
        Ok(form)
    }

    pub(crate) fn field(&mut self, name: &str, value: &str) {
        self.parts.push((name.replace(['"', '\r', '\n'], "_"), String::new(), value.as_bytes().to_vec()));
    }

    pub(crate) fn archive(&mut self, name: &str, content: Vec<u8>) {
        let about = "; filename=\"package.zip\"\r\nContent-Type: application/zip".to_owned();
        self.parts.push((name.to_owned(), about, content));
    }

    fn file(&mut self, name: &str, path: &Path) -> anyhow::Result<()> {
        let read = if path.is_dir() { casement_archive::package::pack(path) } else { std::fs::read(path) };
        self.archive(name, read.with_context(|| format!("cannot read {}", path.display()))?);
        Ok(())
    }

    /// Returns the content type and the body.
    pub(crate) fn into_body(self) -> (String, RequestBody) {
        let boundary = self.boundary();
        let mut body = Vec::new();
        for (name, about, content) in &self.parts {
            let head = format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"{about}\r\n\r\n");
            body.extend_from_slice(head.as_bytes());
            body.extend_from_slice(content);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
        (format!("multipart/form-data; boundary={boundary}"), whole(body))
    }

    /// Returns a boundary that does not occur in the parts: their digest.
    fn boundary(&self) -> String {
        let mut digest = sha2::Sha256::new();
        for (_, _, content) in &self.parts {
            digest.update(content);
        }
        digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
