//! The two kinds of marker, a wait and a hold, and the fields that the Firefox Profiler shows of them.

use fxprof_processed_profile::{
    CategoryHandle, MarkerFieldFlags, MarkerFieldFormat, Profile, StaticSchemaMarker,
    StaticSchemaMarkerField, StringHandle,
};

/// A marker of a wait or of a hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marker<const IS_WAIT: bool> {
    pub(super) name: StringHandle,
    pub(super) category: CategoryHandle,
    /// Of a wait: lock, site, mode, outcome, holder, and the times that it consists of. Of a hold: lock,
    /// site, mode, state.
    pub(super) texts: [StringHandle; 6],
    /// Of a hold: the time that others waited for it in ms, and the most waiters at a time.
    pub(super) numbers: [f64; 2],
}

const fn text(key: &'static str, label: &'static str) -> StaticSchemaMarkerField {
    let (format, flags) = (MarkerFieldFormat::String, MarkerFieldFlags::SEARCHABLE);
    StaticSchemaMarkerField { key, label, format, flags }
}

const fn number(
    key: &'static str,
    label: &'static str,
    format: MarkerFieldFormat,
) -> StaticSchemaMarkerField {
    StaticSchemaMarkerField { key, label, format, flags: MarkerFieldFlags::empty() }
}

const FIELDS_OF_WAIT: &[StaticSchemaMarkerField] = &[
    text("lock", "Lock"),
    text("at", "Asked for at"),
    text("mode", "Mode"),
    text("outcome", "Outcome"),
    text("holder", "Held by when it began"),
    text("spent", "Spent"),
];

const FIELDS_OF_HOLD: &[StaticSchemaMarkerField] = &[
    text("lock", "Lock"),
    text("at", "Acquired at"),
    text("mode", "Mode"),
    text("state", "State"),
    number("caused", "Others waited", MarkerFieldFormat::Duration),
    number("waiters", "Most at a time", MarkerFieldFormat::Integer),
];

impl<const IS_WAIT: bool> StaticSchemaMarker for Marker<IS_WAIT> {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = if IS_WAIT { "LockWait" } else { "LockHold" };
    const DESCRIPTION: Option<&'static str> =
        Some(if IS_WAIT { "A thread waited for a lock." } else { "A thread had a lock." });
    const CHART_LABEL: Option<&'static str> = Some("{marker.data.lock}");
    const TOOLTIP_LABEL: Option<&'static str> =
        Some(if IS_WAIT { "wait for {marker.data.lock}" } else { "hold of {marker.data.lock}" });
    const TABLE_LABEL: Option<&'static str> = Some("{marker.data.lock} at {marker.data.at}");
    const FIELDS: &'static [StaticSchemaMarkerField] = if IS_WAIT { FIELDS_OF_WAIT } else { FIELDS_OF_HOLD };

    fn name(&self, _profile: &mut Profile) -> StringHandle {
        self.name
    }

    fn category(&self, _profile: &mut Profile) -> CategoryHandle {
        self.category
    }

    fn string_field_value(&self, field_index: u32) -> StringHandle {
        self.texts[field_index as usize]
    }

    fn number_field_value(&self, field_index: u32) -> f64 {
        self.numbers[field_index as usize - 4]
    }
}
