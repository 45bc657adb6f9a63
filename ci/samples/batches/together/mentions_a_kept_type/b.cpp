int second(Row* row);
