// SPDX-License-Identifier: MIT
#include "base/statistics.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "base/error.hpp"

namespace dnnsuite::base {
namespace {

TEST(RunningStatistics, KnownValues) {
    RunningStatistics statistics;
    for (const double value : {2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0}) statistics.add(value);
    EXPECT_EQ(statistics.count(), 8);
    EXPECT_DOUBLE_EQ(statistics.mean(), 5);
    EXPECT_DOUBLE_EQ(statistics.variance(), 32.0 / 7);
    EXPECT_EQ(statistics.min(), 2);
    EXPECT_EQ(statistics.max(), 9);
}

TEST(RunningStatistics, UnknownIsNaN) {
    RunningStatistics statistics;
    EXPECT_TRUE(std::isnan(statistics.mean()));
    EXPECT_TRUE(std::isnan(statistics.min()));
    EXPECT_TRUE(std::isnan(statistics.max()));
    statistics.add(1);
    EXPECT_EQ(statistics.mean(), 1);
    EXPECT_TRUE(std::isnan(statistics.variance()));
}

TEST(RunningStatistics, DoesNotCancelAtALargeMean) {
    RunningStatistics statistics;
    for (const double value : {1e9 + 4, 1e9 + 7, 1e9 + 13, 1e9 + 16}) statistics.add(value);
    EXPECT_DOUBLE_EQ(statistics.variance(), 30);
}

TEST(RunningStatistics, MergeIsAsIfAllHadBeenAdded) {
    RunningStatistics all, first, second, empty;
    for (int i = 0; i < 30; ++i) {
        const double value = std::sin(i) * 10 + 100;
        all.add(value);
        (i < 11 ? first : second).add(value);
    }
    first.merge(empty);
    empty.merge(first);
    empty.merge(second);
    EXPECT_EQ(empty.count(), all.count());
    EXPECT_NEAR(empty.mean(), all.mean(), 1e-12);
    EXPECT_NEAR(empty.variance(), all.variance(), 1e-10);
    EXPECT_EQ(empty.min(), all.min());
    EXPECT_EQ(empty.max(), all.max());
}

TEST(StudentT, TableValues) {  // the two-sided tables of any textbook
    EXPECT_NEAR(student_t(0.95, 1), 12.7062, 5e-5);
    EXPECT_NEAR(student_t(0.95, 9), 2.26216, 5e-6);
    EXPECT_NEAR(student_t(0.99, 4), 4.60409, 5e-6);
    EXPECT_NEAR(student_t(0.95, 1e6), 1.95997, 1e-5);
    EXPECT_NEAR(student_t(0.5, 1), 1, 1e-14);  // Cauchy's quartile
}

TEST(StudentT, RefusesWhatIsNotAProbability) {
    EXPECT_THROW(student_t(0, 3), InvalidArgument);
    EXPECT_THROW(student_t(1, 3), InvalidArgument);
    EXPECT_THROW(student_t(std::nan(""), 3), InvalidArgument);
    EXPECT_THROW(student_t(0.95, 0), InvalidArgument);
}

TEST(BatchMeans, KnownInterval) {
    // Two batches with means 1 and 3: sd √2, so t₁ · √2 / √2 = t₁.
    const std::vector<double> values{0, 2, 2, 4};
    const Interval interval = batch_means(values, 2, 0.95);
    EXPECT_DOUBLE_EQ(interval.mean, 2);
    EXPECT_NEAR(interval.half_width, student_t(0.95, 1), 1e-12);
    EXPECT_DOUBLE_EQ(interval.low, 2 - interval.half_width);
    EXPECT_DOUBLE_EQ(interval.high, 2 + interval.half_width);
    EXPECT_EQ(interval.batches, 2);
    EXPECT_TRUE(std::isnan(interval.lag1));
}

TEST(BatchMeans, ConstantSeriesIsKnownExactly) {
    const Interval interval = batch_means(std::vector<double>(40, 0.25), 10, 0.95);
    EXPECT_EQ(interval.mean, 0.25);
    EXPECT_EQ(interval.half_width, 0);
    EXPECT_EQ(interval.lag1, 0);
}

TEST(BatchMeans, AlternatingBatchesAreAnticorrelated) {
    const std::vector<double> values{1, -1, 1, -1, 1, -1};
    EXPECT_DOUBLE_EQ(batch_means(values, 6, 0.95).lag1, -5.0 / 6);
}

TEST(BatchMeans, UsesEveryValueOfAnUnevenSeries) {
    std::vector<double> values(23);
    std::iota(values.begin(), values.end(), 1.0);
    const Interval interval = batch_means(values, 10, 0.95);
    EXPECT_DOUBLE_EQ(interval.mean, 12);
    EXPECT_EQ(interval.batches, 10);
}

TEST(BatchMeans, ShortSeriesGiveAStatus) {
    EXPECT_TRUE(std::isnan(batch_means({}, 10, 0.95).mean));
    EXPECT_EQ(batch_means({}, 10, 0.95).batches, 0);
    const Interval one = batch_means(std::vector<double>{3}, 10, 0.95);
    EXPECT_EQ(one.mean, 3);
    EXPECT_EQ(one.batches, 1);
    EXPECT_TRUE(std::isnan(one.half_width));
    EXPECT_EQ(batch_means(std::vector<double>{3, 4, 5}, 10, 0.95).batches, 3);
}

TEST(BatchMeans, RefusesOneBatchOfMany) {
    EXPECT_THROW(batch_means(std::vector<double>{1, 2}, 1, 0.95), InvalidArgument);
    EXPECT_THROW(batch_means(std::vector<double>{1, 2}, 2, 1.5), InvalidArgument);
}

TEST(Rate, IsAllItemsOverAllSeconds) {
    // The mean of the rates would be (10 + 1) / 2; what was done is 20 items in 11 seconds.
    const std::vector<double> items{10, 10}, seconds{1, 10};
    const Interval interval = rate(items, seconds, 2, 0.95);
    EXPECT_DOUBLE_EQ(interval.mean, 20.0 / 11);
    EXPECT_GT(interval.low, 0);
    EXPECT_TRUE(std::isinf(interval.high));  // 0.55 ± 5.7 seconds per item
}

TEST(Rate, SteadyStepsGiveTheRateItself) {
    const std::vector<double> items(30, 32), seconds(30, 0.5);
    const Interval interval = rate(items, seconds, 10, 0.95);
    EXPECT_EQ(interval.mean, 64);
    EXPECT_EQ(interval.low, 64);
    EXPECT_EQ(interval.high, 64);
}

TEST(Rate, RefusesLengthsThatDiffer) {
    EXPECT_THROW(rate(std::vector<double>{1}, std::vector<double>{1, 2}, 2, 0.95), InvalidArgument);
}

TEST(Rate, ShortSeriesGiveAStatus) {
    EXPECT_TRUE(std::isnan(rate({}, {}, 10, 0.95).mean));
    const Interval one = rate(std::vector<double>{8}, std::vector<double>{2}, 10, 0.95);
    EXPECT_EQ(one.mean, 4);
    EXPECT_TRUE(std::isnan(one.low));
    EXPECT_TRUE(std::isnan(one.high));
}

}  // namespace
}  // namespace dnnsuite::base
