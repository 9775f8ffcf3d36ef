//! Names in a kernel that was made by hand: pages, caches and objects in a map of bytes, with the layout of the running
//! kernel's types.

use super::*;

#[test]
fn cpu_lists_are_spelled_out() {
    assert_eq!(cpus("0-2,5"), [0, 1, 2, 5]);
    assert_eq!(cpus(""), Vec::<u32>::new());
}
