//! The file: the committed page with the data in it.
//!
//! The data are the length of the JSON as 4 bytes, the JSON, and the bytes of the columns, compressed with
//! deflate and written as base64. Nothing of a trace is outside of them, so no name can be taken for markup.

use std::io::Write;

use base64::{engine::general_purpose::STANDARD, write::EncoderWriter};
use flate2::{Compression, write::ZlibEncoder};

use super::data::Data;
use output::error::AnalyzeError;

/// The page, as `cargo xtask page` builds it.
const PAGE: &str = include_str!("../../page/page.html");
/// The place of the data in the page.
const PLACE: &str = "KLOCK_DATA";

pub(super) fn write(data: &Data, columns: &[u8], out: &mut (dyn Write + Send)) -> Result<(), AnalyzeError> {
    let json = serde_json::to_vec(data).map_err(|error| AnalyzeError::Compute(error.into()))?;
    let (before, after) = PAGE.split_once(PLACE).unwrap_or((PAGE, ""));
    let mut fill = || {
        out.write_all(before.as_bytes())?;
        let mut file = ZlibEncoder::new(EncoderWriter::new(&mut *out, &STANDARD), Compression::default());
        file.write_all(&u32::try_from(json.len()).unwrap_or(u32::MAX).to_le_bytes())?;
        file.write_all(&json)?;
        file.write_all(columns)?;
        file.finish()?.finish()?;
        out.write_all(after.as_bytes())
    };
    fill().map_err(AnalyzeError::Write)
}
