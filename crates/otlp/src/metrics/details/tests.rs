use super::*;
use crate::limits::Limits;
use curtail_protobuf as protobuf;

/// A batch of one metric with one point.
fn batch(field: u32, point: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    protobuf::long_message_field(&mut out, 1, |out| {
        protobuf::long_message_field(out, 2, |out| {
            protobuf::long_message_field(out, 2, |out| {
                protobuf::long_message_field(out, field, |out| {
                    protobuf::long_message_field(out, 1, point)
                });
            });
        });
    });
    out
}

fn details(batch: &[u8]) -> Details {
    let (points, _) = Points::decode(batch, &Limits::default()).expect("a good batch");
    points.details(&points.points[0], batch)
}

#[test]
fn numbers_count_whether_they_come_as_one_field_or_as_several() {
    let histogram = batch(9, |out| {
        protobuf::fixed64_field(out, 6, 1);
        protobuf::bytes_field(out, 6, &[[2, 0, 0, 0, 0, 0, 0, 0], [0xFF; 8]].concat());
        protobuf::fixed64_field(out, 7, 0.5_f64.to_bits());
        protobuf::fixed64_field(out, 7, (-0.0_f64).to_bits());
        protobuf::fixed64_field(out, 5, 0);
    });
    let Distribution { bounds, bucket_counts, sum, min, .. } = details(&histogram).distribution;
    assert_eq!(bucket_counts, [1, 2, u64::MAX]);
    assert_eq!(
        bounds.iter().map(|bound| bound.to_bits()).collect::<Vec<_>>(),
        [0.5_f64.to_bits(), (-0.0_f64).to_bits()]
    );
    assert_eq!((sum, min), (Some(0.0), None), "an explicit zero differs from a missing value");
}

#[test]
fn a_message_that_comes_in_two_parts_is_one() {
    let exponential = batch(10, |out| {
        protobuf::long_message_field(out, 8, |out| protobuf::varint_field(out, 2, 7));
        protobuf::long_message_field(out, 8, |out| {
            protobuf::varint_field(out, 1, 5);
            protobuf::bytes_field(out, 2, &[0x80, 0x01, 9]);
        });
        protobuf::long_message_field(out, 9, |_| ());
        protobuf::varint_field(out, 6, u64::from(u32::MAX));
    });
    let Distribution { positive, negative, scale, .. } = details(&exponential).distribution;
    assert_eq!(positive, Some(Buckets { offset: -3, counts: vec![7, 128, 9] }));
    assert_eq!((negative, scale), (Some(Buckets::default()), i32::MIN));
}

#[test]
fn an_exemplar_with_an_id_of_another_length_has_none() {
    let gauge = batch(5, |out| {
        protobuf::fixed64_field(out, 6, 3);
        protobuf::long_message_field(out, 5, |out| {
            protobuf::bytes_field(out, 4, &[1; 7]);
            protobuf::bytes_field(out, 5, &[1; 16]);
            protobuf::fixed64_field(out, 6, u64::MAX);
        });
    });
    let exemplars = details(&gauge).exemplars;
    assert_eq!(exemplars.len(), 1);
    let (span_id, trace_id) = (exemplars[0].span_id, exemplars[0].trace_id);
    assert_eq!((span_id, trace_id), (0, u128::from_be_bytes([1; 16])));
    assert_eq!(exemplars[0].measured, Measured::Int(-1));
}
