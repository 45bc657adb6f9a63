floor
