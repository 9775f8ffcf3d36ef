//! The two kinds of marker, a wait and a hold, and the fields that the Firefox Profiler shows of them.

use fxprof_processed_profile::{
    CategoryHandle, MarkerFieldFlags, MarkerFieldFormat, Profile, StaticSchemaMarker,
    StaticSchemaMarkerField, StringHandle,
};

/// A wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitMarker {
    pub(super) name: StringHandle,
    pub(super) category: CategoryHandle,
    /// Lock, site, mode, outcome, holder, and the times that the wait consists of.
    pub(super) texts: [StringHandle; 6],
}

/// A hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct HoldMarker {
    pub(super) name: StringHandle,
    pub(super) category: CategoryHandle,
    /// Lock, site, mode, state.
    pub(super) texts: [StringHandle; 4],
    /// The time that others waited for it, in ms.
    pub(super) caused_ms: f64,
    pub(super) max_waiters: f64,
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

impl StaticSchemaMarker for WaitMarker {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = "LockWait";
    const DESCRIPTION: Option<&'static str> = Some("A thread waited for a lock.");
    const CHART_LABEL: Option<&'static str> = Some("{marker.data.lock}");
    const TOOLTIP_LABEL: Option<&'static str> = Some("wait for {marker.data.lock}");
    const TABLE_LABEL: Option<&'static str> = Some("{marker.data.lock} at {marker.data.at}");
    const FIELDS: &'static [StaticSchemaMarkerField] = &[
        text("lock", "Lock"),
        text("at", "Asked for at"),
        text("mode", "Mode"),
        text("outcome", "Outcome"),
        text("holder", "Held by when it began"),
        text("spent", "Spent"),
    ];

    fn name(&self, _profile: &mut Profile) -> StringHandle {
        self.name
    }

    fn category(&self, _profile: &mut Profile) -> CategoryHandle {
        self.category
    }

    fn string_field_value(&self, field_index: u32) -> StringHandle {
        self.texts[field_index as usize]
    }

    fn number_field_value(&self, _field_index: u32) -> f64 {
        0.0
    }
}

impl StaticSchemaMarker for HoldMarker {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = "LockHold";
    const DESCRIPTION: Option<&'static str> = Some("A thread had a lock.");
    const CHART_LABEL: Option<&'static str> = Some("{marker.data.lock}");
    const TOOLTIP_LABEL: Option<&'static str> = Some("hold of {marker.data.lock}");
    const TABLE_LABEL: Option<&'static str> = Some("{marker.data.lock} at {marker.data.at}");
    const FIELDS: &'static [StaticSchemaMarkerField] = &[
        text("lock", "Lock"),
        text("at", "Acquired at"),
        text("mode", "Mode"),
        text("state", "State"),
        number("caused", "Others waited", MarkerFieldFormat::Duration),
        number("waiters", "Most at a time", MarkerFieldFormat::Integer),
    ];

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
        if field_index == 4 { self.caused_ms } else { self.max_waiters }
    }
}
