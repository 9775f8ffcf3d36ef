//! The note on attempts that led to no acquisition, for formats without a row for them.

/// Returns a note on attempts that a format has no row for.
pub(super) fn failed_attempts(abandoned: i64, try_failed: i64) -> Option<String> {
    let of = |count: i64, one: &str, several: &str| match count {
        0 => None,
        1 => Some(format!("1 {one}")),
        _ => Some(format!("{count} {several}")),
    };
    let parts = [
        of(abandoned, "wait that ended without the lock", "waits that ended without the lock"),
        of(try_failed, "failed trylock", "failed trylocks"),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| {
        format!(
            "the format has no row for {}; klock analyze report -F abandoned,try_failed does",
            parts.join(" and ")
        )
    })
}
